import { useQuery } from '@tanstack/react-query'
import { ChevronDownIcon, ChevronUpIcon } from 'lucide-react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { count, duration } from '../../format'
import { useKeys } from '../../keys'
import { IconButton } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { Drawer } from '../../ui/Dialog'
import { A } from '../../ui/Link'
import { Refusal } from '../../ui/Refusal'
import { Facts, Money, SkeletonLines, Time } from '../../ui/Values'
import { Exchange } from './Exchange'
import { Grade } from './Grade'

/** One exchange, whole: its facts, its messages, and a place to grade it. */
export function LogDrawer({ id, onClose, onStep }: { id: string; onClose: () => void; onStep: (by: number) => void }) {
  const ws = useWorkspaceId()
  const log = useQuery({
    queryKey: ['log', ws, id], staleTime: Infinity, // a row never changes
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/logs/{id}', { params: { path: { id } }, signal })),
  })
  useKeys('Row', [
    { keys: 'j', label: 'Next row', run: () => onStep(1) },
    { keys: 'k', label: 'Previous row', run: () => onStep(-1) },
  ])
  const row = log.data
  return (
    <Drawer open onClose={onClose} title="Exchange" text={<Id value={id} />} footer={<>
      <span data-keys="Row" className="mr-auto flex gap-1">
        <IconButton label="Previous row (k)" onClick={() => onStep(-1)}><ChevronUpIcon size={16} /></IconButton>
        <IconButton label="Next row (j)" onClick={() => onStep(1)}><ChevronDownIcon size={16} /></IconButton>
      </span>
      <CurlButton call={{ path: `/v1/logs/${id}` }} />
    </>}>
      {log.error ? <Refusal error={log.error} retry={() => void log.refetch()} /> : !row ? <SkeletonLines lines={8} /> : (
        <div className="space-y-5">
          <Facts rows={[
            ['Time', <Time key="t" value={row.created_at} />],
            ['Model', <>
              {row.requested_model !== row.model && <>{row.requested_model} → </>}
              <A to="logs" query={{ model: row.model }}>{row.model}</A>{row.fallback_from && <span className="text-warn"> instead of {row.fallback_from}</span>}
            </>],
            ...(row.tag ? [['Tag', <A key="g" to="logs" query={{ tag: row.tag }}>{row.tag}</A>] as [string, React.ReactNode]] : []),
            ...(row.trace_id ? [['Trace', <A key="r" to={`traces/${encodeURIComponent(row.trace_id)}`}>{row.trace_id}</A>] as [string, React.ReactNode]] : []),
            ['Segment', <A key="s" to="logs" query={{ segment: row.segment }}>{row.segment}</A>],
            ['Tokens', `${count(row.prompt_tokens)} in, ${count(row.completion_tokens)} out`],
            ['Cost', <Money key="c" usd={row.cost_usd} />],
            ['Latency', `${duration(row.latency_ms)}${row.stream ? `, first token after ${duration(row.time_to_first_token_ms)}` : ''}`],
            ['End', row.finish_reason + (row.cached ? ', from the cache' : '')],
            ['Key', <Id key="k" value={row.key_id} />],
            ['Request', <Id key="q" value={row.request_id} />],
            ['Deleted', <Time key="e" value={row.expires_at} relative />],
          ]} />
          <section aria-label="Grade"><h3 className="mb-2 text-sm font-semibold">Grade</h3><Grade key={row.request_id} subject={{ request_id: row.request_id }} /></section>
          <section aria-label="Messages"><h3 className="mb-2 text-sm font-semibold">Messages</h3>
            <Exchange messages={row.messages} response={row.response} tools={row.tools} /></section>
        </div>
      )}
    </Drawer>
  )
}
