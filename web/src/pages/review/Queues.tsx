import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { PlusIcon } from 'lucide-react'
import { curl } from '../../api/curl'
import { useWorkspace } from '../../api/session'
import { useKeys } from '../../keys'
import { flag, oneOf, text, useQueryState } from '../../query'
import { count, plural } from '../../format'
import { Badge } from '../../ui/Badge'
import { Button, buttonClass } from '../../ui/Button'
import { EmptyState } from '../../ui/EmptyState'
import { A } from '../../ui/Link'
import { useNarrow } from '../../ui/narrow'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'
import { Table, type Column } from '../../ui/Table'
import { Progress, SkeletonLines, Time } from '../../ui/Values'
import { agreementQuery, progressQuery, queuesQuery, type Queue, type Source } from './api'
import { NewQueue } from './NewQueue'
import { AgreementView, Tiers } from './Progress'
import { kinds, readIds } from './source'

const schema = {
  closed: flag, queue: text(), new: flag,
  // What a new queue is made from: other pages link here with it.
  criterion: text(), kind: oneOf(kinds.map((kind) => kind.value), 'logs'), scan: text(), ids: text(), model: text(), tag: text(), segment: text(),
  finish_reason: text(), start: text(), end: text(),
}

const columns: Column<Queue>[] = [
  { id: 'name', header: 'Queue', width: 'minmax(160px,2fr)', card: 'title', cell: (q) => <span className="font-medium">{q.name}</span> },
  { id: 'progress', header: 'Done', width: 'minmax(150px,1fr)', cell: (q) => <Progress label={`${q.name}, done`} done={q.counts.done} total={q.counts.items} /> },
  { id: 'mine', header: 'Waits for you', width: '110px', right: true, card: 'title', cell: (q) => q.may_grade ? <>{count(q.mine.waiting + q.mine.claimed)}<span className="font-normal text-soft sm:hidden"> to grade</span></> : '–' },
  { id: 'conflicts', header: 'Conflicts', width: '90px', right: true, card: 'none', cell: (q) => q.counts.conflicts ? <Badge tone="warn">{count(q.counts.conflicts)}</Badge> : '0' },
  { id: 'made', header: 'Made', width: '120px', card: 'none', cell: (q) => <Time value={q.created_at} relative /> },
]

export default function Queues() {
  const workspace = useWorkspace()
  const [state, set] = useQueryState(schema)
  const navigate = useNavigate()
  const narrow = useNarrow()
  const isMember = workspace.role !== ''
  const list = useQuery(queuesQuery(workspace.id, isMember, state.closed))
  const rows = list.data?.data ?? []
  const chosen = rows.find((q) => q.id === state.queue) ?? rows[0]
  const open = (q: Queue) => void navigate({ to: `/w/${workspace.id}/review/${q.id}` as never })
  useKeys('Review', [{ keys: 'n', label: 'New queue', run: () => set({ new: true }) }], workspace.manages)
  return (
    <Page title="Review" aside={list.data && plural(rows.length, state.closed ? 'closed queue' : 'open queue')} actions={<>
      {isMember && <Switch label="Show closed" on={state.closed} onChange={(closed) => set({ closed, queue: '' })} />}
      {workspace.manages && <Button look="primary" icon={<PlusIcon size={14} />} onClick={() => set({ new: true })}>New queue</Button>}
    </>}>
      {list.error && <Refusal error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <SkeletonLines />}
      {list.data && rows.length === 0 && <Empty manages={workspace.manages} isMember={isMember} closed={state.closed} start={() => set({ new: true })} />}
      {rows.length > 0 && (
        <div className="grid items-start gap-4 xl:grid-cols-[minmax(0,1fr)_24rem]">
          <div className="card min-w-0 overflow-hidden">
            <Table label="Queues" keys columns={columns} rows={rows} rowKey={(q) => q.id} onOpen={open}
              active={rows.findIndex((q) => q.id === chosen?.id)} onActive={(i) => set({ queue: rows[i]?.id ?? '' })} />
          </div>
          {chosen && isMember && !narrow && <Detail key={chosen.id} ws={workspace.id} queue={chosen} />}
        </div>
      )}
      {state.new && workspace.manages && (
        <NewQueue ws={workspace.id} criterion={state.criterion} source={sourceOf(state)}
          onClose={() => set(Object.fromEntries(Object.keys(schema).map((name) => [name, name === 'new' || name === 'closed' ? false : name === 'kind' ? 'logs' : ''])))} />
      )}
    </Page>
  )
}

function sourceOf(state: { kind: Source['kind']; scan: string; ids: string; model: string; tag: string; segment: string; finish_reason: string; start: string; end: string }): Source {
  const { kind, scan, ids, model, tag, segment, finish_reason, start, end } = state
  if (ids) return { kind: 'ids', ...readIds(ids) }
  return { kind, n: 50, ...(scan && { scan_id: scan }), filters: { model, tag, segment, finish_reason, start, end }, runs: { model, tag } }
}

/** What the chosen queue is like: labels needed per tier, and agreement. */
function Detail({ ws, queue }: { ws: string; queue: Queue }) {
  const progress = useQuery(progressQuery(ws, queue.id))
  const agreement = useQuery(agreementQuery(ws, queue.id))
  const error = progress.error ?? agreement.error
  const waiting = queue.mine.waiting + queue.mine.claimed
  return (
    <aside aria-label={`About ${queue.name}`}>
      <Section title={queue.name} actions={<A to={`review/${queue.id}`} query={{ view: 'progress' }} className="link text-xs">Details</A>}>
        {queue.may_grade && !queue.closed_at && (
          <A to={`review/${queue.id}`} className={buttonClass(waiting > 0 ? 'primary' : 'plain')}>{waiting > 0 ? `Grade ${plural(waiting, 'item')}` : 'Open'}</A>
        )}
        {!queue.may_grade && <p className="text-sm text-soft">To grade here you need a grant; an owner or admin gives it.</p>}
        {error && <div className="mt-2"><Refusal error={error} /></div>}
        <h3 className="mt-4 mb-1 text-xs font-semibold text-soft">Labels still needed</h3>
        {progress.data ? <Tiers progress={progress.data} queue={queue} /> : !error && <SkeletonLines lines={3} />}
        <h3 className="mt-4 mb-1 text-xs font-semibold text-soft">Agreement between people</h3>
        {!error && <AgreementView agreement={agreement.data} queue={queue} />}
      </Section>
    </aside>
  )
}

function Empty({ manages, isMember, closed, start }: { manages: boolean; isMember: boolean; closed: boolean; start: () => void }) {
  if (closed) return <EmptyState title="No closed queue" text="Queues that are closed stand here. Their labels stay." />
  if (!isMember) return <EmptyState title="Nothing to grade" text="No queue is open to you now. Whoever invited you can open one." />
  return (
    <EmptyState title="No review queue yet"
      text={<>A queue gives people one item after another to grade: a sample of logs, whole runs, what a scan failed, or what judge and people disagree on. Each grade is a label that measures a judge. Experts get a link that opens their queue and nothing else. {!manages && 'An owner or admin makes queues.'} Labels can be sent by API as well:</>}
      snippet={curl({ method: 'POST', path: '/v1/labels', body: { request_id: 'req_…', criterion_id: 'crit_…', verdict: 'pass', critique: 'Short and right.' } })}
      action={manages && <Button look="primary" onClick={start}>Make a queue</Button>} />
  )
}
