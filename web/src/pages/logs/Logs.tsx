import { DownloadIcon, PauseIcon, PlayIcon, RefreshCwIcon, SnowflakeIcon } from 'lucide-react'
import { useMemo, useRef, useState } from 'react'
import { ApiError } from '../../api/errors'
import { download, withQuery } from '../../api/client'
import { useWorkspace } from '../../api/session'
import { useCommands } from '../../app/commands'
import { Histogram } from '../../chart/Histogram'
import { count, duration, plural } from '../../format'
import { useKeys } from '../../keys'
import { useQueryState } from '../../query'
import { Badge } from '../../ui/Badge'
import { Button, buttonClass, IconButton } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { useNarrow } from '../../ui/narrow'
import { Page } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, Skeleton, Time } from '../../ui/Values'
import { Consent } from './Consent'
import { DatasetDialog } from './DatasetDialog'
import { facetFilters, isFiltered, schema, selection, serverFilters } from './filters'
import { FilterBar } from './FilterBar'
import { LogDrawer } from './LogDrawer'
import { answered, asked, type Log } from './messages'
import { useFacets, useHistogram, useLogRows, useTail } from './rows'
import { SavedViews } from './SavedViews'

const columns: Column<Log>[] = [
  { id: 'time', header: 'Time', width: '136px', cell: (log) => <Time value={log.created_at} short />, card: 'line' },
  { id: 'model', header: 'Model', width: 'minmax(212px,1fr)', card: 'line', cell: (log) => (
    <span title={log.fallback_from ? `instead of ${log.fallback_from}` : undefined}>{log.alias ? `${log.alias} → ` : ''}{log.model}</span>
  ) },
  { id: 'asked', header: 'Asked', width: 'minmax(160px,2.5fr)', cell: (log) => asked(log), card: 'title' },
  { id: 'answered', header: 'Answered', width: 'minmax(160px,2.5fr)', cell: (log) => <span className="text-soft">{answered(log)}</span>, card: 'none' },
  { id: 'tag', header: 'Tag', width: '90px', cell: (log) => log.tag ?? '', card: 'none' },
  { id: 'finish', header: 'Finish', width: '88px', card: 'none', cell: (log) => (
    <span className="flex gap-1">{log.cached ? <Badge tone="info">cached</Badge> : log.finish_reason === 'stop' ? <span className="text-faint">stop</span>
      : <Badge tone="warn">{log.finish_reason}</Badge>}</span>
  ) },
  { id: 'tokens', header: 'Tokens', width: '74px', right: true, cell: (log) => count(log.total_tokens), card: 'none' },
  { id: 'latency', header: 'Latency', width: '80px', right: true, cell: (log) => duration(log.latency_ms), card: 'line' },
  { id: 'cost', header: 'Cost', width: '104px', right: true, cell: (log) => <Money usd={log.cost_usd} />, card: 'title' },
]

/** Every logged request: counted over time, filtered, followed as it comes, exported, frozen, graded. */
export default function Logs() {
  const workspace = useWorkspace()
  const narrow = useNarrow()
  const [state, set] = useQueryState(schema)
  const [asOf, setAsOf] = useState(() => new Date())
  const [dialog, setDialog] = useState<'' | 'dataset' | 'view'>('')
  const filterBar = useRef<HTMLDivElement>(null)
  const filters = useMemo(() => serverFilters(state, asOf),
    [state.model, state.tag, state.segment, state.finish_reason, state.cache_hit, state.range, state.start, state.end, asOf])
  const list = useLogRows(workspace.id, filters, true)
  const off = list.first.error instanceof ApiError && list.first.error.code === 'logging_disabled'
  const histogram = useHistogram(workspace.id, filters, !off)
  const [wantsFacets, setWantsFacets] = useState(() => matchMedia('(hover: none)').matches)
  const facets = useFacets(workspace.id, filters, !off && wantsFacets) // read when the filters are approached
  const tail = useTail(workspace.id, facetFilters(state), state.tail && !off)
  const bars = useMemo(() => histogram.data?.buckets.map((b) => ({ ...b, count: b.count ?? 0 })), [histogram.data])
  const chart = useMemo(() => bars && <Histogram title="Exchanges over time" buckets={bars}
    onBrush={(start, end) => set({ start, end, tail: false }, { push: true })} />, [bars, set]) // a page that is read does not draw it again
  const rows = state.tail ? { count: tail.rows.length, at: (i: number) => tail.rows[i] } : { count: list.total, at: list.at }
  const [active, setActive] = useState(-1)
  const refresh = () => setAsOf(new Date())
  const open = (i: number) => {
    const row = rows.at(i)
    if (row) set({ row: row.id })
    setActive(i)
  }

  useKeys('Logs', [
    { keys: '/', label: 'Filter', run: () => filterBar.current?.querySelector<HTMLElement>('select,input')?.focus() },
    { keys: 'f', label: 'Follow as they come, or pause', run: () => set({ tail: !state.tail }) },
    { keys: 'R', label: 'Refresh', run: refresh },
    { keys: 'x', label: 'Clear the filters', run: () => set(cleared) },
  ], !off)
  useCommands(off ? [] : [
    { id: 'logs tail', label: state.tail ? 'Logs: pause' : 'Logs: follow as they come', hint: 'f', run: () => set({ tail: !state.tail }) },
    { id: 'logs dataset', label: 'Logs: freeze this view into a dataset', run: () => setDialog('dataset') },
    { id: 'logs save', label: 'Logs: save this view', run: () => setDialog('view') },
  ])

  if (off) return <Page title="Logs"><Consent onOn={() => void list.first.refetch()} /></Page>
  const empty = list.first.data && !list.first.isPlaceholderData && list.total === 0 && !state.tail
  const call = { path: withQuery('/v1/logs', { ...facetFilters(state), start: filters.start, end: state.end || undefined, limit: 50 }) }
  return (
    <Page title="Logs" aside={list.first.data ? <span aria-live="polite">{plural(list.total, 'exchange')}{isFiltered(state) ? ' in this view' : ''}</span> : <Skeleton className="h-4 w-24" />}
      actions={<>
        <SavedViews page="logs" saving={dialog === 'view'} onSave={(on) => setDialog(on ? 'view' : '')} />
        <Button aria-pressed={state.tail} look={state.tail ? 'primary' : 'plain'} icon={state.tail ? <PauseIcon size={14} /> : <PlayIcon size={14} />}
          onClick={() => set({ tail: !state.tail })}>{state.tail ? 'Pause' : 'Follow'}</Button>
        <a className={buttonClass()} download href={download(workspace.id, '/logs/export', filters)}><DownloadIcon size={14} aria-hidden /> Export</a>
        <Button icon={<SnowflakeIcon size={14} />} disabled={!workspace.manages} onClick={() => setDialog('dataset')}
          title={workspace.manages ? 'Freeze these exchanges into a dataset' : 'Needs an owner or admin'}>Dataset</Button>
        {narrow ? null : <CurlButton small={false} call={call} />}
        <IconButton label="Refresh" look="plain" onClick={refresh}><RefreshCwIcon size={14} /></IconButton>
      </>}>
      <FilterBar ref={filterBar} state={state} set={set} facets={facets.data} onApproach={() => setWantsFacets(true)} />
      <div className="card mb-3 px-3 pt-2 pb-1">
        {histogram.error ? <Refusal error={histogram.error} retry={() => void histogram.refetch()} />
          : chart ?? <Skeleton className="h-[126px]" />}
      </div>
      {list.first.error && <Refusal error={list.first.error} retry={() => void list.first.refetch()} />}
      {state.tail && <TailLine tail={tail} />}
      {empty ? <Nothing filtered={isFiltered(state)} clear={() => set(cleared)} /> : (
        <div className={`card ${list.first.isPlaceholderData ? 'opacity-60' : ''}`}>
          <Table label="Logged exchanges" keys columns={columns} rows={rows} rowKey={(log) => log.id} height={narrow ? '70dvh' : 'max(320px, calc(100dvh - 290px))'}
            active={active} onActive={setActive} onOpen={(_, i) => open(i)} onRange={state.tail ? undefined : list.onRange}
            marked={(log) => log.id === state.row} />
        </div>
      )}
      {state.row && <LogDrawer id={state.row} onClose={() => set({ row: '' })}
        onStep={(by) => rows.at(active + by) && open(active + by)} />}
      <DatasetDialog open={dialog === 'dataset'} onClose={() => setDialog('')} filters={selection(state, asOf)} total={list.total} />
    </Page>
  )
}

const cleared = { model: '', tag: '', segment: '', finish_reason: '', cache_hit: '', range: 'all', start: '', end: '' } as const

function TailLine({ tail }: { tail: ReturnType<typeof useTail> }) {
  const reasons = new Map([
    ['session_ended', 'Your session has ended.'], ['logging_disabled', 'Logging was turned off.'], ['server_stops', 'The server is stopping.'],
    ['refused', 'The server refused: too many people follow this workspace, or it cannot be reached.'],
  ])
  return (
    <p role="status" className="mb-2 flex items-center gap-2 text-sm text-soft">
      <span aria-hidden className={`size-2 rounded-full ${tail.ended ? 'bg-edge' : 'animate-pulse bg-pass'}`} />
      {tail.ended ? reasons.get(tail.ended) ?? `Ended: ${tail.ended}.` : tail.rows.length ? `Following: ${plural(tail.rows.length, 'exchange')} since it began.`
        : 'Following: waiting for the next exchange.'}
      {tail.dropped > 0 && <Badge tone="warn">{plural(tail.dropped, 'row')} not shown: they came too fast</Badge>}
    </p>
  )
}

function Nothing({ filtered, clear }: { filtered: boolean; clear: () => void }) {
  if (filtered) return <EmptyState title="Nothing fits these filters" text="Widen the time range, or clear them." action={<Button onClick={clear}>Clear the filters</Button>} />
  return (
    <EmptyState title="No exchange yet" text="Logging is on. Send a chat request, and it is here within a second."
      snippet={[`curl -sS ${location.origin}/v1/chat/completions \\`, `  -H "Authorization: Bearer $SOVEREIGN_API_KEY" \\`, `  -H "X-Service-Tag: checkout" \\`,
        `  -H "Content-Type: application/json" \\`, `  -d '{"model":"sim/chat","messages":[{"role":"user","content":"Hello"}]}'`].join('\n')} />
  )
}
