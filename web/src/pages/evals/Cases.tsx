import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import type { components } from '../../api/v1'
import { count } from '../../format'
import { useKeys } from '../../keys'
import { int, oneOf, text, useQueryState } from '../../query'
import { Badge, type Tone } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Select } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { SkeletonLines } from '../../ui/Values'
import { readMessage, readMessages } from '../logs/messages'
import { CaseDrawer } from './CaseDrawer'
import { isRunning } from './Evals'
import type { Eval } from './gate'

export type Case = components['schemas']['EvalCase']

const outcomes = ['', 'win', 'loss', 'tie', 'failed'] as const
const schema = {
  candidate: text(), outcome: oneOf(outcomes, ''), flipped: oneOf(['', 'true', 'false'] as const, ''),
  sort: oneOf(['regression', ''] as const, 'regression'), offset: int(0), case: text(),
}

const tones: Record<string, Tone> = { win: 'pass', loss: 'fail', tie: 'neutral', failed: 'warn' }
export const Outcome = ({ of }: { of: Case }) => <Badge tone={tones[of.outcome]}>{of.outcome}{of.flipped ? ' · flipped' : ''}</Badge>

const brief = (text: string) => text.replace(/\s+/g, ' ').slice(0, 160)
const askedOf = (one: Case) => {
  const all = readMessages(one.messages)
  return brief((all.findLast((m) => m.role === 'user') ?? all[all.length - 1])?.text ?? '')
}

const columns: Column<Case>[] = [
  { id: 'outcome', header: 'Candidate', width: '130px', cell: (one) => <Outcome of={one} />, card: 'title' },
  { id: 'asked', header: 'Asked', width: 'minmax(200px,2fr)', cell: (one) => askedOf(one) || <span className="text-faint">text deleted</span>, card: 'title' },
  { id: 'base', header: 'Baseline answered', width: 'minmax(140px,1.4fr)', cell: (one) => brief(readMessage(one.baseline_answer.response).text), card: 'none' },
  { id: 'cand', header: 'Candidate answered', width: 'minmax(140px,1.4fr)', cell: (one) => brief(readMessage(one.candidate_answer.response).text), card: 'none' },
  { id: 'model', header: 'Model', width: 'minmax(100px,1fr)', cell: (one) => one.candidate },
]

const limit = 100
export const caseKey = (one: Case) => `${one.id}@${one.candidate}`

/** The cases that are done: those that speak most against the candidate first. */
export function Cases({ run }: { run: Eval }) {
  const ws = useWorkspaceId()
  const [state, set] = useQueryState(schema)
  const query = {
    ...(state.candidate && { candidate: state.candidate }), ...(state.outcome && { outcome: state.outcome }),
    ...(state.flipped && { flipped: state.flipped === 'true' }), ...(state.sort && { sort: state.sort }), limit, offset: state.offset,
  }
  const list = useQuery({
    queryKey: ['eval-cases', ws, run.id, isRunning(run) ? run.progress.done : run.status, query], placeholderData: keepPreviousData,
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/evals/{id}/cases', { params: { path: { id: run.id }, query: query as never }, signal })),
  })
  const rows = list.data?.data ?? []
  const at = rows.findIndex((one) => caseKey(one) === state.case)
  const go = (by: number) => {
    const next = rows[at < 0 ? 0 : at + by]
    if (next) set({ case: caseKey(next) })
  }
  useKeys('Cases', [{ keys: 'n', label: 'Next case', run: () => go(1) }, { keys: 'p', label: 'Case before', run: () => go(-1) }], at < 0)
  const only = (part: Parameters<typeof set>[0]) => set({ ...part, offset: 0, case: '' }, { push: true })
  const path = `/v1/evals/${run.id}/cases?${new URLSearchParams(Object.entries(query).map(([k, v]) => [k, String(v)]))}`
  return (
    <Section title="Cases" flush aside={list.data && list.data.has_more || state.offset ? `${count(state.offset + 1)} to ${count(state.offset + rows.length)}` : count(rows.length)} actions={<>
      {run.candidate_models.length > 1 && (
        <Select aria-label="Candidate" value={state.candidate} onChange={(candidate) => only({ candidate })}
          options={[{ value: '', label: 'All candidates' }, ...run.candidate_models]} />
      )}
      <Select aria-label="Outcome" value={state.outcome} onChange={(outcome) => only({ outcome: outcome as typeof state.outcome })}
        options={[{ value: '', label: 'Any outcome' }, 'win', 'loss', 'tie', 'failed']} />
      {run.kind === 'comparison' && (
        <Select aria-label="Flipped" value={state.flipped} onChange={(flipped) => only({ flipped: flipped as typeof state.flipped })}
          options={[{ value: '', label: 'Flipped or not' }, { value: 'true', label: 'Flipped' }, { value: 'false', label: 'Not flipped' }]} />
      )}
      <Select aria-label="Order" value={state.sort} onChange={(sort) => only({ sort: sort as typeof state.sort })}
        options={[{ value: 'regression', label: 'Regressions first' }, { value: '', label: 'As they were drawn' }]} />
      <CurlButton call={{ path }} />
    </>}>
      {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
      {list.isPending && <div className="p-3"><SkeletonLines /></div>}
      {list.data && rows.length === 0 && (
        <p className="px-3.5 py-4 text-sm text-soft">{isRunning(run) && run.progress.done === 0 ? 'The first case is being answered.' : 'No case fits these filters.'}</p>
      )}
      {rows.length > 0 && (
        <Table label="Cases" keys columns={columns} rows={rows} rowKey={caseKey} height={rows.length > 20 ? '70vh' : undefined} marked={(one) => caseKey(one) === state.case}
          onOpen={(one) => set({ case: caseKey(one) }, { push: true })} />
      )}
      {(state.offset > 0 || list.data?.has_more) && (
        <div className="flex justify-center gap-2 p-2">
          <Button disabled={state.offset === 0} onClick={() => set({ offset: Math.max(0, state.offset - limit), case: '' })}>Before</Button>
          <Button disabled={!list.data?.has_more} onClick={() => set({ offset: state.offset + limit, case: '' })}>Next</Button>
        </div>
      )}
      {at >= 0 && <CaseDrawer key={state.case} run={run} of={rows[at]!} go={go} place={`${at + 1 + state.offset}`} onClose={() => set({ case: '' })} />}
    </Section>
  )
}
