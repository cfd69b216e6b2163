import { queryOptions, useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { PlusIcon } from 'lucide-react'
import { data, v1 } from '../../api/client'
import { curl } from '../../api/curl'
import { useWorkspace } from '../../api/session'
import { useKeys } from '../../keys'
import { flag, text, useQueryState } from '../../query'
import { count, percent, plural } from '../../format'
import { Badge } from '../../ui/Badge'
import { Button, buttonClass } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { SkeletonLines, Time } from '../../ui/Values'
import { Freeze } from './Freeze'
import type { Dataset } from './funnel'

const schema = { freeze: flag, model: text(), tag: text(), segment: text(), finish_reason: text(), cache_hit: text(), start: text(), end: text() }

export const datasetsQuery = (ws: string) => queryOptions({
  queryKey: ['datasets', ws],
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/datasets', { params: { query: { limit: 200 } }, signal })),
})

const columns: Column<Dataset>[] = [
  { id: 'name', header: 'Dataset', width: 'minmax(160px,2fr)', card: 'title', cell: (d) => <span className="font-medium">{d.name}</span> },
  { id: 'role', header: 'For', width: '100px', card: 'title', cell: (d) => <Badge tone={d.role === 'eval' ? 'info' : 'neutral'}>{d.role === 'eval' ? 'evaluation' : 'training'}</Badge> },
  { id: 'rows', header: 'Examples', width: '90px', right: true, named: true, cell: (d) => count(d.rows) },
  { id: 'kept', header: 'Kept', width: '130px', right: true, cell: (d) => <span>{d.curation.scanned ? percent(d.curation.kept / d.curation.scanned, 0) : '–'} <span className="text-xs text-faint">of {count(d.curation.scanned)}</span></span> },
  { id: 'from', header: 'From', width: 'minmax(160px,2fr)', card: 'none', cell: (d) => <span className="text-soft">{describeFilters(d.provenance.filters)}</span> },
  { id: 'made', header: 'Frozen', width: '120px', card: 'none', cell: (d) => <Time value={d.created_at} relative /> },
]

export const describeFilters = (filters: object): string =>
  Object.entries(filters).filter(([, value]) => value !== undefined && value !== '').map(([name, value]) => `${name.replaceAll('_', ' ')} ${String(value)}`).join(', ') || 'all logs'

export default function Datasets() {
  const workspace = useWorkspace()
  const navigate = useNavigate()
  const [state, set] = useQueryState(schema)
  const list = useQuery(datasetsQuery(workspace.id))
  const { freeze, ...filters } = state
  const rows = list.data?.data ?? []
  const close = () => set({ freeze: false, model: '', tag: '', segment: '', finish_reason: '', cache_hit: '', start: '', end: '' })
  useKeys('Datasets', [{ keys: 'n', label: 'Freeze a dataset', run: () => set({ freeze: true }) }], workspace.manages)
  return (
    <Page title="Datasets" aside={list.data && plural(rows.length, 'dataset')} actions={<>
      <CurlButton small={false} call={{ path: '/v1/datasets' }} />
      {workspace.manages && <Button look="primary" icon={<PlusIcon size={14} />} onClick={() => set({ freeze: true })}>Freeze from logs</Button>}
    </>}>
      {list.error && <Refusal error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <SkeletonLines />}
      {list.data && rows.length === 0 && (
        <EmptyState title="No dataset yet" text={<>A dataset freezes logged exchanges into examples for training or evaluation. It never changes, and stays when the logs expire. Choose the exchanges in <A to="logs">Logs</A>, and make a dataset of what the filter shows. {!workspace.manages && 'An owner or admin does that.'}</>}
          snippet={curl({ method: 'POST', path: '/v1/datasets/from_logs', body: { name: 'support', holdout_pct: 20, filters: { tag: 'support' } } })}
          action={<><A to="logs" className={buttonClass('primary')}>Choose in Logs</A>{workspace.manages && <Button onClick={() => set({ freeze: true })}>Freeze from logs…</Button>}</>} />
      )}
      {rows.length > 0 && <Section title="All datasets" flush><Table label="Datasets" keys columns={columns} rows={rows} rowKey={(d) => d.id}
        onOpen={(d) => void navigate({ to: `/w/${workspace.id}/datasets/${d.id}` as never })} /></Section>}
      {freeze && workspace.manages && <Freeze ws={workspace.id} filters={filters} onClose={close} onDone={(d) => void navigate({ to: `/w/${workspace.id}/datasets/${d.id}` as never })} />}
    </Page>
  )
}
