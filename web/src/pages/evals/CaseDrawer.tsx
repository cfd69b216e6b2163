import { useMutation } from '@tanstack/react-query'
import { ChevronLeftIcon, ChevronRightIcon, ThumbsDownIcon, ThumbsUpIcon } from 'lucide-react'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import type { components } from '../../api/v1'
import { useToast } from '../../app/Toasts'
import { useCriteria } from '../aliases/EditAlias'
import { duration } from '../../format'
import { useKeys } from '../../keys'
import { useAllowed } from '../../ui/Allowed'
import { Status } from '../../ui/Badge'
import { Button, IconButton } from '../../ui/Button'
import { CopyButton, CurlButton } from '../../ui/Copy'
import { Drawer } from '../../ui/Dialog'
import { SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Refusal } from '../../ui/Refusal'
import { Money } from '../../ui/Values'
import { MessageView } from '../logs/Exchange'
import { readMessage, readMessages } from '../logs/messages'
import { Outcome, type Case } from './Cases'
import type { Eval } from './gate'

type Answer = components['schemas']['CaseAnswer']
type Verdict = components['schemas']['CaseVerdict']

interface Props { run: Eval; of: Case; go: (by: number) => void; place: string; onClose: () => void }

/** One case: what was asked, both answers side by side, what the judge said of each. */
export function CaseDrawer({ run, of, go, place, onClose }: Props) {
  useKeys('Case', [
    { keys: 'n', label: 'Next case', run: () => go(1) }, { keys: 'p', label: 'Case before', run: () => go(-1) },
  ])
  const messages = readMessages(of.messages)
  const say = (who: 'baseline' | 'candidate') => of.verdicts.filter((verdict) => verdict.of === who)
  const compared = of.verdicts.filter((verdict) => verdict.of === null || verdict.of === undefined)
  return (
    <Drawer open wide onClose={onClose} title={`Case ${place}`} text={<span className="flex flex-wrap items-center gap-2"><Outcome of={of} /> {of.candidate} against {run.baseline_model}</span>} footer={<>
      <span className="mr-auto flex gap-1">
        <IconButton label="Case before (p)" onClick={() => go(-1)}><ChevronLeftIcon size={16} /></IconButton>
        <IconButton label="Next case (n)" onClick={() => go(1)}><ChevronRightIcon size={16} /></IconButton>
      </span>
      {of.request_id && <A to="logs" query={{ row: of.request_id }} className="link text-sm">The logged request</A>}
      <CopyButton small={false} label="Copy link" text={() => location.href} />
    </>}>
      <div data-keys="Case" className="space-y-5">
        <section className="space-y-3">
          <h3 className="text-sm font-semibold">Asked</h3>
          {messages.length === 0 ? <p className="text-sm text-soft">The texts were deleted, with the log that they come from.</p>
            : messages.map((message, i) => <MessageView key={i} message={message} />)}
        </section>
        <div className="grid gap-5 md:grid-cols-2">
          <Side title="Baseline" run={run} of={of} answer={of.baseline_answer} verdicts={say('baseline')} />
          <Side title="Candidate" run={run} of={of} answer={of.candidate_answer} verdicts={say('candidate')} />
        </div>
        {compared.length > 0 && (
          <section className="space-y-2">
            <h3 className="text-sm font-semibold">The judge, in both orders</h3>
            <div className="grid gap-3 md:grid-cols-2">{compared.map((verdict, i) => <Comparison key={i} of={verdict} />)}</div>
          </section>
        )}
      </div>
    </Drawer>
  )
}

function Comparison({ of }: { of: Verdict }) {
  return (
    <div className="rounded-md border border-line p-2.5 text-sm">
      <p className="text-xs text-soft">{of.shown_first} was shown first · {of.failure ? <span className="text-fail">{of.failure}</span>
        : <>prefers <b className="text-text">{of.winner === 'tie' ? 'neither' : of.winner}</b></>}</p>
      {of.critique && <p className="mt-1 break-words whitespace-pre-wrap">{of.critique}</p>}
    </div>
  )
}

function Side({ title, run, of, answer, verdicts }: { title: string; run: Eval; of: Case; answer: Answer; verdicts: Verdict[] }) {
  return (
    <section className="min-w-0 space-y-2">
      <h3 className="text-sm font-semibold">{title}: <span className="font-normal">{answer.model}</span></h3>
      <p className="flex flex-wrap gap-x-3 text-xs text-soft">
        <Money usd={answer.cost_usd} />{answer.latency_ms !== null && answer.latency_ms !== undefined && <span>{duration(answer.latency_ms)}</span>}
        {answer.finish_reason && <span>{answer.finish_reason}</span>}{answer.reused && <span>the logged answer</span>}
      </p>
      {answer.failure ? <p className="rounded-md bg-fail-ground p-2 text-sm">{answer.failure}</p>
        : answer.response ? <MessageView message={readMessage(answer.response)} answer /> : <p className="text-sm text-soft">The text was deleted.</p>}
      {verdicts.map((verdict, i) => (
        <div key={i} className="rounded-md border border-line p-2.5 text-sm">
          {verdict.failure ? <span className="text-fail">{verdict.failure}</span> : <span className="flex items-center gap-2"><Status value={verdict.verdict ?? 'none'} />
            {verdict.grade !== null && verdict.grade !== undefined && <span className="text-xs text-soft">grade {verdict.grade}</span>}</span>}
          {verdict.critique && <p className="mt-1 break-words whitespace-pre-wrap">{verdict.critique}</p>}
        </div>
      ))}
      {answer.response ? <MakeLabel run={run} of={of} answer={answer} /> : null}
    </section>
  )
}

/** Makes a label of the reader's own verdict on an answer. Labels are what judges are calibrated with. */
function MakeLabel({ run, of, answer }: { run: Eval; of: Case; answer: Answer }) {
  const ws = useWorkspaceId()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const [critique, setCritique] = useState('')
  const [criterion, setCriterion] = useState(run.criterion_id ?? '')
  const criteria = useCriteria().data?.data ?? []
  const body = (verdict: 'pass' | 'fail') => ({
    model: answer.model, verdict, ...(criterion && { criterion_id: criterion }), ...(critique.trim() && { critique: critique.trim() }),
  })
  const make = useMutation({
    mutationFn: (verdict: 'pass' | 'fail') => data(v1(ws).POST('/v1/evals/{id}/cases/{case_id}/labels', {
      params: { path: { id: run.id, case_id: of.id } }, body: body(verdict),
    })),
    onSuccess: (made) => tell(`Labelled: ${made.verdict}`, {
      undo: () => data(v1(ws).DELETE('/v1/labels/{id}', { params: { path: { id: made.id } } })),
    }),
  })
  return (
    <details className="text-sm"><summary className="text-soft">Make a label</summary>
      <div className="mt-2 space-y-2">
        {!run.criterion_id && (
          <SelectField label="For the judge" value={criterion} onChange={setCriterion}
            options={[{ value: '', label: 'None in particular' }, ...criteria.map((one) => ({ value: one.id, label: one.name }))]} />
        )}
        <TextField label="Why" value={critique} onChange={(event) => setCritique(event.target.value)} />
        <div className="flex flex-wrap items-center gap-2">
          <Button icon={<ThumbsUpIcon size={14} />} disabled={!may} title={why} busy={make.isPending} onClick={() => make.mutate('pass')}>Pass</Button>
          <Button icon={<ThumbsDownIcon size={14} />} disabled={!may} title={why} busy={make.isPending} onClick={() => make.mutate('fail')}>Fail</Button>
          <CurlButton call={{ method: 'POST', path: `/v1/evals/${run.id}/cases/${of.id}/labels`, body: body('pass') }} />
        </div>
        {make.error && <Refusal error={make.error} />}
      </div>
    </details>
  )
}
