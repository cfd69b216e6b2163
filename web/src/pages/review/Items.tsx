import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { call } from '../../api/client'
import { flag, oneOf, useQueryState } from '../../query'
import { Badge, Status } from '../../ui/Badge'
import { Select } from '../../ui/Field'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'
import { Table, type Column } from '../../ui/Table'
import { SkeletonLines } from '../../ui/Values'
import { type Item, type Listed, type Queue } from './api'

const schema = { state: oneOf(['', 'open', 'done', 'expired'], ''), conflict: flag }

const columnsOf = (conflicts: boolean): Column<Item>[] => [
  { id: 'item', header: 'Item', width: 'minmax(180px,2fr)', card: 'title', cell: (i) => <code className="font-mono text-xs">{i.trace_id ?? i.request_id ?? i.id}</code> },
  { id: 'state', header: 'State', width: '110px', card: 'title', cell: (i) => i.conflict || conflicts ? <Badge tone="warn">conflict</Badge> : <Status value={i.state} /> },
  { id: 'judge', header: 'Judge', width: '80px', cell: (i) => i.judge ? <Status value={i.judge.verdict} /> : <span className="text-faint">–</span> },
  {
    id: 'grades', header: 'Grades', width: 'minmax(120px,1fr)',
    cell: (i) => i.grades.length > 0 ? <span className="inline-flex gap-1">{i.grades.map((g) => <Status key={g.user_id} value={g.verdict} />)}</span>
      : i.grade ? <Status value={i.grade.verdict} /> : <span className="text-faint">none</span>,
  },
  { id: 'assigned', header: 'Assigned', width: '90px', right: true, card: 'none', cell: (i) => i.assignees.length || '–' },
  { id: 'why', header: 'Why it is here', width: 'minmax(180px,2fr)', card: 'none', cell: (i) => <span className="text-soft">{i.reason}</span> },
]

/** All items of a queue, for those who manage it. */
export function Items({ ws, queue }: { ws: string; queue: Queue }) {
  const [state, set] = useQueryState(schema)
  const navigate = useNavigate()
  const items = useQuery({
    queryKey: ['queue', ws, queue.id, 'items', state.state, state.conflict],
    queryFn: ({ signal }) => call<Listed<Item>>(ws, 'GET', `/queues/${queue.id}/items`, {
      query: { state: state.state, conflict: state.conflict || undefined, limit: 200 }, signal,
    }),
  })
  return (
    <>
      <div className="mb-3 flex flex-wrap items-center gap-3">
        <Select aria-label="State" value={state.state} onChange={(value) => set({ state: value as typeof state.state })}
          options={[{ value: '', label: 'Every state' }, 'open', 'done', 'expired']} />
        <Switch label="Conflicts alone" on={state.conflict} onChange={(conflict) => set({ conflict })} />
      </div>
      {items.error && <Refusal error={items.error} retry={() => void items.refetch()} />}
      {items.isPending && <SkeletonLines />}
      {items.data?.data.length === 0 && <p className="text-sm text-soft">No item is like that.</p>}
      {items.data && items.data.data.length > 0 && (
        <div className="card overflow-hidden">
          <Table label="Items" keys columns={columnsOf(state.conflict)} rows={items.data.data} rowKey={(i) => i.id}
            onOpen={(i) => void navigate({ to: '.', search: { item: i.id } as never })} />
        </div>
      )}
      {items.data?.has_more && <p className="mt-2 text-xs text-faint">The first 200 are shown.</p>}
    </>
  )
}
