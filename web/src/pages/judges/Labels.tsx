import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { asApiError } from '../../api/errors'
import { useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { int, oneOf, text, useQueryState } from '../../query'
import { Badge, Status } from '../../ui/Badge'
import { Button, buttonClass } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { Confirm, Drawer } from '../../ui/Dialog'
import { EmptyState } from '../../ui/EmptyState'
import { curl } from '../../api/curl'
import { Select } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Person } from '../../ui/Person'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Facts, SkeletonLines, Time } from '../../ui/Values'
import { Exchange } from '../logs/Exchange'
import { repeated } from '../review/grading'
import type { Label } from './api'

const size = 100
const schema = { verdict: oneOf(['', 'pass', 'fail'], ''), ruled: oneOf(['', 'true', 'false'], ''), from: int(0), label: text() }

const columns: Column<Label>[] = [
  { id: 'verdict', header: 'Verdict', width: '80px', card: 'title', cell: (l) => <Status value={l.verdict} /> },
  { id: 'ruling', header: 'Ruling', width: '110px', card: 'title', cell: (l) => l.adjudication ? <Badge tone="info">{l.adjudication.kind.replaceAll('_', ' ')}</Badge> : <span className="text-faint">–</span> },
  { id: 'critique', header: 'Critique', width: 'minmax(200px,2fr)', cell: (l) => l.critique || <span className="text-faint">–</span> },
  { id: 'author', header: 'Author', width: 'minmax(120px,1fr)', cell: (l) => <span className="text-soft"><Person id={l.author} /></span> },
  { id: 'source', header: 'Source', width: '90px', card: 'none', cell: (l) => <span className="text-soft">{l.source}</span> },
  { id: 'half', header: 'Half', width: '80px', card: 'none', cell: (l) => <span className="text-soft">{l.straddles ? 'neither' : l.in_report_half ? 'report' : 'tuning'}</span> },
  { id: 'when', header: 'When', width: '120px', card: 'none', cell: (l) => <Time value={l.created_at} relative /> },
]

/** The labels of a judge. */
export function Labels({ ws, judge }: { ws: string; judge: string }) {
  const [state, set] = useQueryState(schema)
  const query = { criterion_id: judge, limit: size, offset: state.from, verdict: state.verdict || undefined, adjudicated: state.ruled === '' ? undefined : state.ruled === 'true' }
  const labels = useQuery({
    queryKey: ['labels', ws, query],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/labels', { params: { query: query as never }, signal })),
  })
  const rows = labels.data?.data ?? []
  const unfiltered = !state.verdict && !state.ruled && state.from === 0
  return (
    <>
      <div className="mb-3 flex flex-wrap items-center gap-2">
        <Select aria-label="Verdict" value={state.verdict} onChange={(verdict) => set({ verdict: verdict as never, from: 0 })} options={[{ value: '', label: 'Any verdict' }, 'pass', 'fail']} />
        <Select aria-label="Ruling" value={state.ruled} onChange={(ruled) => set({ ruled: ruled as never, from: 0 })}
          options={[{ value: '', label: 'Ruled on or not' }, { value: 'true', label: 'Ruled on' }, { value: 'false', label: 'Not ruled on' }]} />
        <span className="ml-auto flex gap-2"><CurlButton call={{ path: `/v1/labels?criterion_id=${judge}${state.verdict && `&verdict=${state.verdict}`}` }} />
          <A to="review" query={{ new: 'true', criterion: judge }} className={buttonClass()}>Grade more in a queue</A></span>
      </div>
      {labels.error && <Refusal error={labels.error} retry={() => void labels.refetch()} />}
      {labels.isPending && <SkeletonLines />}
      {labels.data && rows.length === 0 && (unfiltered
        ? <EmptyState title="No label yet" text="A label is a person’s grade of an exchange or a run. Labels measure this judge; 30 pass and 30 fail make a start."
          snippet={curl({ method: 'POST', path: '/v1/labels', body: { criterion_id: judge, request_id: 'req_…', verdict: 'pass', critique: 'Short and right.' } })} />
        : <p className="text-sm text-soft">No label is like that.</p>)}
      {rows.length > 0 && <div className="card overflow-hidden"><Table label="Labels" keys columns={columns} rows={rows} rowKey={(l) => l.id} onOpen={(l) => set({ label: l.id })} /></div>}
      {(state.from > 0 || labels.data?.has_more) && (
        <div className="mt-2 flex items-center gap-2 text-xs text-soft">
          <Button small disabled={state.from === 0} onClick={() => set({ from: Math.max(0, state.from - size) })}>Newer</Button>
          {state.from + 1} to {state.from + rows.length}
          <Button small disabled={!labels.data?.has_more} onClick={() => set({ from: state.from + size })}>Older</Button>
        </div>
      )}
      {state.label && <LabelDrawer ws={ws} id={state.label} onClose={() => set({ label: '' })} />}
    </>
  )
}

/** A label with what it grades. */
export function LabelDrawer({ ws, id, onClose }: { ws: string; id: string; onClose: () => void }) {
  const { manages } = useWorkspace()
  const queries = useQueryClient()
  const { tell } = useToast()
  const [deleting, setDeleting] = useState(false)
  const read = useQuery({
    queryKey: ['label', ws, id],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/labels/{id}', { params: { path: { id } }, signal })),
  })
  const label = read.data as Label | undefined
  const steps = label?.subject?.steps ?? []
  return (
    <Drawer open wide onClose={onClose} title="Label" text={<Id value={id} />} footer={manages && label && <Button look="danger" onClick={() => setDeleting(true)}>Delete…</Button>}>
      {read.error && (asApiError(read.error).status === 404 ? <p className="text-sm text-soft">It was deleted.</p> : <Refusal error={read.error} />)}
      {read.isPending && <SkeletonLines />}
      {label && <>
        <Facts rows={[
          ['Verdict', <span key="v" className="inline-flex gap-2"><Status value={label.verdict} />{label.grade !== null && <span className="text-soft">grade {label.grade}</span>}</span>],
          ...(label.adjudication ? [['Ruling', <span key="r"><Badge tone="info">{label.adjudication.kind.replaceAll('_', ' ')}</Badge> <span className="text-soft">{label.adjudication.note} · <Time value={label.adjudication.adjudicated_at} relative /></span></span>] as [string, React.ReactNode]] : []),
          ['Critique', label.critique || <span key="c" className="text-faint">none</span>],
          ['Author', <span key="a"><Person id={label.author} />, by {label.source}</span>],
          ['Half', label.straddles ? 'neither: it ties both together' : label.in_report_half ? 'report: it measures the judge' : 'tuning: the judge may learn from it'],
          ['Made', <Time key="t" value={label.created_at} />],
        ]} />
        <h3 className="mt-4 mb-2 text-sm font-semibold">What was graded</h3>
        {steps.map((step, i) => (
          <div key={i} className={i > 0 ? 'mt-4 border-t border-line pt-3' : ''}>
            <Exchange messages={step.messages} response={step.response} tools={step.tools} from={repeated(steps[i - 1] as never, step as never)} />
          </div>
        ))}
      </>}
      <Confirm open={deleting} onClose={() => setDeleting(false)} danger title="Delete the label" action="Delete"
        text="This cannot be undone. A certificate that was measured by it becomes void."
        run={async () => {
          await data(v1(ws).DELETE('/v1/labels/{id}', { params: { path: { id } } }))
          for (const key of ['labels', 'criterion', 'certificate', 'adjudication']) void queries.invalidateQueries({ queryKey: [key, ws] })
          tell('Label deleted')
          onClose()
        }} />
    </Drawer>
  )
}
