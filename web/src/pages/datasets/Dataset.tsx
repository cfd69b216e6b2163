import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { DownloadIcon } from 'lucide-react'
import { useState } from 'react'
import { data, download, v1 } from '../../api/client'
import { useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { Funnel } from '../../chart/Funnel'
import { count, percent, plural } from '../../format'
import { int, useQueryState } from '../../query'
import { Badge } from '../../ui/Badge'
import { Button, buttonClass } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { Confirm, Drawer } from '../../ui/Dialog'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Person } from '../../ui/Person'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Facts, SkeletonLines, Time } from '../../ui/Values'
import { JsonView, TextView } from '../../ui/Viewer'
import { describeFilters } from './Datasets'
import { firstLines, funnelOf, readExample, type Dataset, type Example } from './funnel'

const schema = { row: int(0) }
const preview = 100

export default function DatasetPage() {
  const workspace = useWorkspace()
  const { dataset: id = '' } = useParams({ strict: false }) as { dataset?: string }
  const read = useQuery({
    queryKey: ['dataset', workspace.id, id],
    queryFn: ({ signal }) => data(v1(workspace.id).GET('/v1/datasets/{id}', { params: { path: { id } }, signal })),
  })
  const above = <A to="datasets">Datasets</A>
  if (read.error) return <Page title="Dataset" above={above}><Refusal error={read.error} retry={() => void read.refetch()} /></Page>
  const d = read.data
  if (!d) return <Page title="Dataset" above={above}><SkeletonLines lines={8} /></Page>
  const path = `/datasets/${d.id}/export`
  return (
    <Page title={d.name} above={above} aside={<><Badge tone={d.role === 'eval' ? 'info' : 'neutral'}>{d.role === 'eval' ? 'evaluation' : 'training'}</Badge>{plural(d.rows, 'example')}</>} actions={<>
      <CurlButton small={false} call={{ path: `/v1${path}` }} />
      <a className={buttonClass()} href={download(workspace.id, path)} download={`${d.name}.jsonl`}><DownloadIcon size={14} aria-hidden /> Export JSONL</a>
      {workspace.manages && d.role !== 'eval' && <A to="training" query={{ new: 'job', dataset: d.id }} className={buttonClass()}>Train on it</A>}
      <Delete ws={workspace.id} dataset={d} />
    </>}>
      <div className="grid items-start gap-x-4 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <div className="min-w-0"><Section title="Curation" aside={d.curation.capped ? 'the newest 100,000; there were more' : undefined}><Funnel title="From logs to examples" steps={funnelOf(d)} /></Section></div>
        <div className="min-w-0">
          <Section title="Provenance"><Provenance dataset={d} /></Section>
        </div>
      </div>
      <Examples ws={workspace.id} dataset={d} />
    </Page>
  )
}

function Provenance({ dataset: d }: { dataset: Dataset }) {
  const { filters, first_at: first, last_at: last, segment, created_by: by } = d.provenance
  const query = Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== undefined && value !== '').map(([k, v]) => [k, String(v)]))
  const partner = d.holdout_id ?? d.holdout_of
  return (
    <Facts rows={[
      ['From', <A key="l" to="logs" query={query}>{describeFilters(filters)}</A>],
      ['Exchanges of', <span key="t"><Time value={first} /> to <Time value={last} /></span>],
      ['Segment', segment ?? 'several'],
      ...(partner ? [[d.role === 'eval' ? 'Held out of' : 'Held out as', <span key="h"><A to={`datasets/${partner}`}>{partner.slice(0, 14)}…</A> <span className="text-soft">{split(d)}</span></span>] as [string, React.ReactNode]] : [['Split', 'nothing is held out'] as [string, string]]),
      ['Folded', `${plural(d.curation.folded_turns, 'turn')} of ${plural(d.curation.folded_conversations, 'conversation')}`],
      ['Frozen', <span key="f"><Time value={d.created_at} /> <span className="text-soft">by <Person id={by} /></span></span>],
      ['Id', <Id key="i" value={d.id} />],
    ]} />
  )
}

function split(d: Dataset): string {
  const { kept } = d.curation
  return kept > 0 ? `${count(d.rows)} here, ${count(kept - d.rows)} there (${percent((kept - d.rows) / kept, 0)})` : ''
}

interface Numbered extends Example { at: number }

const columns: Column<Numbered>[] = [
  { id: 'at', header: '#', width: '56px', right: true, cell: (e) => <span className="text-faint">{e.at}</span> },
  { id: 'asked', header: 'Asked', width: 'minmax(200px,1fr)', card: 'title', cell: (e) => line(e.messages.findLast((m) => m.role === 'user')?.text ?? e.text) },
  { id: 'answer', header: 'Answer', width: 'minmax(200px,1fr)', cell: (e) => { const last = e.messages[e.messages.length - 1]; return line(last?.text || last?.calls.map((call) => `${call.name}(${call.args})`).join(' ') || '') } },
  { id: 'turns', header: 'Messages', width: '84px', right: true, card: 'none', cell: (e) => e.messages.length },
]

const line = (text: string) => text.slice(0, 300)

function Examples({ ws, dataset }: { ws: string; dataset: Dataset }) {
  const [{ row }, set] = useQueryState(schema)
  const read = useQuery({
    queryKey: ['dataset rows', ws, dataset.id], staleTime: Infinity, enabled: dataset.rows > 0,
    queryFn: ({ signal }) => firstLines(download(ws, `/datasets/${dataset.id}/export`), preview, signal),
  })
  const rows = (read.data ?? []).map((text, i): Numbered => ({ ...readExample(text), at: i + 1 }))
  const open = rows[row - 1]
  return (
    <Section title="Examples" aside={rows.length < dataset.rows ? `the first ${rows.length} of ${count(dataset.rows)}` : plural(dataset.rows, 'example')} flush>
      {dataset.rows === 0 && <p className="px-3.5 py-3 text-sm text-soft">It has no examples: everything that matched was one group, and stands in the other dataset.</p>}
      {read.error && <div className="p-3"><Refusal error={read.error} retry={() => void read.refetch()} /></div>}
      {read.isFetching && <div className="p-3"><SkeletonLines /></div>}
      {rows.length > 0 && <Table label="Examples" keys columns={columns} rows={rows} rowKey={(e) => String(e.at)} height="420px" onOpen={(e) => set({ row: e.at }, { push: true })} />}
      {open && (
        <Drawer open wide onClose={() => set({ row: 0 })} title={`Example ${open.at}`} text={plural(open.messages.length, 'message')}>
          <div className="space-y-3">
            {open.messages.length === 0 && <TextView text={open.text} markdown={false} />}
            {open.messages.map((message, i) => (
              <div key={i} className={message.role === 'assistant' ? 'border-l-2 border-accent pl-3' : ''}>
                {(message.text || message.calls.length === 0) && <TextView label={message.role} text={message.text} />}
                {message.calls.map((call, n) => <TextView key={n} markdown={false} label={<>calls <code className="font-mono">{call.name}</code></>} text={call.args} />)}
              </div>
            ))}
            {open.tools.length > 0 && <details><summary className="text-sm text-soft">{plural(open.tools.length, 'tool')}</summary><JsonView value={open.tools} /></details>}
          </div>
        </Drawer>
      )}
    </Section>
  )
}

function Delete({ ws, dataset }: { ws: string; dataset: Dataset }) {
  const { manages } = useWorkspace()
  const queries = useQueryClient()
  const navigate = useNavigate()
  const { tell } = useToast()
  const [open, setOpen] = useState(false)
  return (
    <>
      <Button look="danger" disabled={!manages} title={manages ? undefined : 'An owner or admin of the workspace does this.'} onClick={() => setOpen(true)}>Delete…</Button>
      <Confirm open={open} onClose={() => setOpen(false)} danger title="Delete the dataset" action="Delete" typedName={dataset.name}
        text={`Its ${plural(dataset.rows, 'example')} are deleted. ${dataset.holdout_id || dataset.holdout_of ? 'Its other half stays. ' : ''}This cannot be undone.`}
        run={async () => {
          await data(v1(ws).DELETE('/v1/datasets/{id}', { params: { path: { id: dataset.id } } }))
          await queries.invalidateQueries({ queryKey: ['datasets', ws] })
          tell('Dataset deleted')
          void navigate({ to: `/w/${ws}/datasets` as never })
        }} />
    </>
  )
}
