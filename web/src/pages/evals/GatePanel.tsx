import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { CheckIcon, XIcon } from 'lucide-react'
import { useEffect, useState } from 'react'
import { v1 } from '../../api/client'
import { refusal } from '../../api/errors'
import { useWorkspaceId } from '../../api/session'
import { rate } from '../../format'
import { text, useQueryState } from '../../query'
import { Badge } from '../../ui/Badge'
import { CopyButton, CurlButton } from '../../ui/Copy'
import { Snippet } from '../../ui/EmptyState'
import { SelectField, TextField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { SkeletonLines } from '../../ui/Values'
import { isRunning } from './Evals'
import { checksOf, firstChecks, gateAction, gateCommand, gatePath, gateQuery, type Eval, type Gate, type GateState } from './gate'

const schema = {
  g_candidate: text(), g_min_win_rate: text(), g_min_pass_rate: text(), g_max_regression: text(), g_max_cost_ratio: text(),
  g_max_latency_ratio: text(), g_require_trust: text(), g_confidence: text('0.95'), gate: text(),
}

const prefixed = (state: Partial<GateState>) => Object.fromEntries(Object.entries(state).map(([name, value]) => [`g_${name}`, value]))

/** The deploy gate: choose the checks, see what each proves, take its URL or its command along. */
export function GatePanel({ run }: { run: Eval }) {
  const ws = useWorkspaceId()
  const [state, set] = useQueryState(schema)
  const gate = Object.fromEntries(Object.entries(state).map(([name, value]) => [name.replace(/^g_/, ''), value])) as unknown as GateState
  const isFirst = state.gate === '' && checksOf(run).every((check) => gate[check.name] === '')
  const asked = gateQuery(run, isFirst ? { ...gate, ...firstChecks(run) } : gate)
  const now = isFirst ? { ...gate, ...firstChecks(run) } : gate
  const change = (part: Partial<GateState>) => set({ ...prefixed({ ...now, ...part }), gate: 'set' } as never)
  const answer = useQuery({
    queryKey: ['eval-gate', ws, run.id, run.status, run.progress.done, asked], placeholderData: keepPreviousData,
    queryFn: async ({ signal }) => {
      const { data, error, response } = await v1(ws).GET('/v1/evals/{id}/gate', { params: { path: { id: run.id }, query: asked as never }, signal })
      const body = (data ?? error) as Partial<Gate> | undefined
      if (!response.ok && !Array.isArray(body?.checks)) throw refusal(response, error)
      return { pass: response.ok, checks: body!.checks! }
    },
  })
  const path = gatePath(run, asked)
  const command = gateCommand(run, asked)
  return (
    <Section title="Gate" aside={answer.data && <Badge tone={answer.data.pass ? 'pass' : 'fail'}>{answer.data.pass ? 'passes' : 'refuses'}</Badge>} actions={<>
      <CopyButton label="Gate URL" what="Gate URL" text={location.origin + path} /><CurlButton call={{ path }} />
    </>}>
      <div className="grid gap-3 sm:grid-cols-3 lg:grid-cols-4">
        {run.candidate_models.length > 1 && (
          <SelectField label="Candidate" value={now.candidate || run.candidate_models[0]!} options={run.candidate_models} onChange={(candidate) => change({ candidate })} />
        )}
        {checksOf(run).map((check) => check.name === 'require_trust' ? (
          <SelectField key={check.name} label={check.label} hint={check.about} value={now.require_trust} onChange={(require_trust) => change({ require_trust })}
            options={[{ value: '', label: 'not asked' }, 'provisional', 'measured', 'calibrated', 'certified']} />
        ) : (
          <NumberBox key={check.name} label={check.label} hint={check.about} placeholder={`not asked; ${check.example}`} value={now[check.name]}
            onSet={(value) => change({ [check.name]: value })} />
        ))}
        <NumberBox label="Confidence" hint="of every bound" placeholder="0.95" value={now.confidence} onSet={(confidence) => change({ confidence: confidence || '0.95' })} />
      </div>
      <div className="mt-3">
        {answer.error ? <Refusal error={answer.error} retry={() => void answer.refetch()} /> : !answer.data ? <SkeletonLines /> : <Checks of={answer.data.checks} />}
        {isRunning(run) && <p className="mt-2 text-sm text-soft">A run that is not done does not pass, however good it looks so far.</p>}
      </div>
      <details className="mt-3 text-sm"><summary className="text-soft">In a pipeline</summary>
        <p className="mt-2 text-soft">It waits for the run, prints the checks, and exits with 0 when every check passes, 1 when one does not, 2 when it could not ask.</p>
        <Snippet text={command} />
        <p className="mt-3 text-soft">GitHub Actions:</p><Snippet text={gateAction(command)} />
      </details>
    </Section>
  )
}

/** A number that is taken when the reader has finished it, so that half a number asks nothing. */
function NumberBox({ label, hint, placeholder, value, onSet }: { label: string; hint: string; placeholder: string; value: string; onSet: (value: string) => void }) {
  const [draft, setDraft] = useState(value)
  useEffect(() => setDraft(value), [value])
  const fits = draft === '' || /^\d+(\.\d+)?$/.test(draft)
  const take = () => fits && draft !== value && onSet(draft)
  return (
    <TextField label={label} hint={hint} placeholder={placeholder} inputMode="decimal" value={draft} error={fits ? undefined : 'Must be a number'}
      onChange={(event) => setDraft(event.target.value.trim())} onBlur={take} onKeyDown={(event) => event.key === 'Enter' && take()} />
  )
}

const figure = (x: number) => (Number.isInteger(x) ? String(x) : rate(x)).replace('-', '−')

/** What a check is called; its reason has the numbers in a sentence. */
const checkName = (check: string) => new Map([
  ['min_win_rate', 'Wins often enough'], ['min_pass_rate', 'Passes often enough'], ['max_regression', 'Not worse than the baseline'],
  ['max_cost_ratio', 'Not dearer'], ['max_latency_ratio', 'Not slower'], ['require_trust', 'The judge can be trusted'], ['cases', 'Enough cases'],
]).get(check) ?? check.replaceAll('_', ' ')

function Checks({ of }: { of: Gate['checks'] }) {
  return (
    <ul className="space-y-2">
      {of.map((check) => (
        <li key={check.check} className="rounded-md border border-line px-3 py-2">
          <div className="flex flex-wrap items-center gap-x-4 gap-y-1 text-sm">
            <span className="flex min-w-52 items-center gap-1.5 font-medium">
              {check.pass ? <CheckIcon size={14} className="text-pass" aria-label="passes" /> : <XIcon size={14} className="text-fail" aria-label="refuses" />}
              {checkName(check.check)}
            </span>
            {([['observed', check.observed], ['proven', check.bound], ['asked', check.check === 'max_regression' && check.threshold ? -check.threshold : check.threshold]] as const)
              .map(([name, value]) => value !== null && value !== undefined && (
                <span key={name} className="text-soft">{name} <b className="text-text">{figure(value)}</b></span>
              ))}
          </div>
          <p className="mt-0.5 text-sm text-soft">{check.reason}</p>
        </li>
      ))}
    </ul>
  )
}
