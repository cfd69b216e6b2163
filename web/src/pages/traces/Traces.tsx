import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { GitCompareArrowsIcon, RefreshCwIcon } from 'lucide-react'
import { useMemo, useState } from 'react'
import { data, v1 } from '../../api/client'
import { ApiError } from '../../api/errors'
import { useWorkspaceId } from '../../api/session'
import type { components } from '../../api/v1'
import { count, duration, plural } from '../../format'
import { useKeys } from '../../keys'
import { Button, IconButton } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { useNarrow } from '../../ui/narrow'
import { Page } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, SkeletonLines, Time } from '../../ui/Values'
import { Consent } from '../logs/Consent'

type Trace = components['schemas']['Trace']

const pageSize = 100

const length = (trace: Trace) => new Date(trace.last_at).getTime() - new Date(trace.first_at).getTime()

/** The runs of agents, the last active first. */
export default function Traces() {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const narrow = useNarrow()
  const [active, setActive] = useState(-1)
  const [left, setLeft] = useState('') // the first of two that are compared
  const list = useInfiniteQuery({
    queryKey: ['traces', ws], initialPageParam: 0,
    queryFn: ({ signal, pageParam }) => data(v1(ws).GET('/v1/traces', { params: { query: { limit: pageSize, offset: pageParam } }, signal })),
    getNextPageParam: (last, pages) => (last.has_more ? pages.reduce((n, page) => n + page.data.length, 0) : undefined),
  })
  const rows = useMemo(() => list.data?.pages.flatMap((page) => page.data) ?? [], [list.data])
  const go = (trace: string, other?: string) => void navigate({
    to: `/w/${ws}/traces/${encodeURIComponent(trace)}` as never, search: (other ? { with: other } : {}) as never,
  })
  const compare = (trace: Trace | undefined) => {
    if (!trace) return
    if (left && left !== trace.id) go(left, trace.id)
    else setLeft(left ? '' : trace.id)
  }
  useKeys('Traces', [
    { keys: 'c', label: 'Compare: choose the first, then the second', run: () => compare(rows[active]) },
    { keys: 'R', label: 'Refresh', run: () => void list.refetch() },
  ])
  const columns: Column<Trace>[] = [
    { id: 'id', header: 'Run', width: 'minmax(200px,3fr)', cell: (t) => <span className="font-mono text-xs">{t.id}</span>, card: 'title' },
    { id: 'last', header: 'Last step', width: '150px', cell: (t) => <Time value={t.last_at} short /> },
    { id: 'length', header: 'Duration', width: '110px', right: true, cell: (t) => duration(length(t)) },
    { id: 'steps', header: 'Steps', width: '80px', right: true, named: true, cell: (t) => count(t.steps) },
    { id: 'in', header: 'Tokens in', width: '100px', right: true, cell: (t) => count(t.prompt_tokens), card: 'none' },
    { id: 'out', header: 'Tokens out', width: '100px', right: true, cell: (t) => count(t.completion_tokens), card: 'none' },
    { id: 'cost', header: 'Cost', width: '110px', right: true, cell: (t) => <Money usd={t.cost_usd} />, card: 'title' },
    { id: 'compare', header: 'Compare', width: '124px', card: 'none', cell: (t) => (
      <Button small look={left === t.id ? 'primary' : 'quiet'} icon={<GitCompareArrowsIcon size={12} />} aria-pressed={left === t.id}
        onClick={(event) => {
          event.stopPropagation()
          compare(t)
        }}>{left && left !== t.id ? 'with it' : 'compare'}</Button>
    ) },
  ]
  if (list.error instanceof ApiError && list.error.code === 'logging_disabled') {
    return <Page title="Traces"><Consent onOn={() => void list.refetch()} /></Page>
  }
  return (
    <Page title="Traces" aside={list.data && `${plural(rows.length, 'run')}${list.hasNextPage ? ' and more' : ''}`} actions={<>
      <CurlButton small={false} call={{ path: '/v1/traces?limit=50' }} />
      <IconButton label="Refresh" look="plain" onClick={() => void list.refetch()}><RefreshCwIcon size={14} /></IconButton>
    </>}>
      {left && <p role="status" className="mb-2 text-sm text-soft">Comparing <code className="font-mono text-xs">{left}</code>: choose the run to put beside it.</p>}
      {list.error && <Refusal error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <SkeletonLines lines={8} />}
      {list.data && rows.length === 0 && (
        <EmptyState title="No run yet" text="Send the same X-Service-Trace-Id with every request of a run. Its steps are then one trace, to read and to grade as a whole."
          snippet={[`curl -sS ${location.origin}/v1/chat/completions \\`, `  -H "Authorization: Bearer $SOVEREIGN_API_KEY" \\`, `  -H "X-Service-Trace-Id: run-1" \\`,
            `  -H "Content-Type: application/json" \\`, `  -d '{"model":"sim/chat","messages":[{"role":"user","content":"First step"}]}'`].join('\n')} />
      )}
      {rows.length > 0 && (
        <div className="card">
          <Table label="Runs" keys columns={columns} rows={rows} rowKey={(t) => t.id} active={active} onActive={setActive} onOpen={(t) => go(t.id)}
            height={narrow ? '75dvh' : 'calc(100dvh - 130px)'} marked={(t) => t.id === left}
            onRange={(_, last) => last >= rows.length - 20 && list.hasNextPage && !list.isFetchingNextPage && void list.fetchNextPage()} />
        </div>
      )}
    </Page>
  )
}
