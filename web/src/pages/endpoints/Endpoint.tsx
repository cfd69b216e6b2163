import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { OctagonAlertIcon } from 'lucide-react'
import { useEffect, useRef, useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspace, useWorkspaceId } from '../../api/session'
import { Badge, Status } from '../../ui/Badge'
import { CopyButton, CurlButton, Id } from '../../ui/Copy'
import { Snippet } from '../../ui/EmptyState'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal, sentence } from '../../ui/Refusal'
import { Tabs } from '../../ui/Tabs'
import { Facts, Money, SkeletonLines, Stat, Stats, Time } from '../../ui/Values'
import { Actions } from './Actions'
import { endpointQuery, walletQuery, type Endpoint as Shape } from './api'
import { isAsleep, mostHourly, replicasText, seconds, snippets, stateWords } from './endpoint'
import { Served } from './Endpoints'

/** One dedicated endpoint: whether it answers, what it costs, how it is called, and why it failed. */
export default function Endpoint() {
  const ws = useWorkspaceId()
  const { endpoint: id } = useParams({ strict: false }) as { endpoint: string }
  const endpoint = useQuery(endpointQuery(ws, id))
  const above = <><A to="training">Training</A> / <A to="training" query={{ tab: 'endpoints' }}>Endpoints</A></>
  if (endpoint.error) return <Page title="Endpoint" above={above}><Refusal error={endpoint.error} retry={() => void endpoint.refetch()} /></Page>
  if (!endpoint.data) return <Page title="Endpoint" above={above}><SkeletonLines lines={8} /></Page>
  return <Loaded of={endpoint.data} above={above} />
}

function Loaded({ of, above }: { of: Shape; above: React.ReactNode }) {
  const ws = useWorkspaceId()
  const wallet = useQuery(walletQuery(ws))
  const holds = (wallet.data?.holds ?? []).filter((hold) => hold.id.startsWith(`${of.id}.`))
  const held = holds.reduce((sum, hold) => sum + hold.left_usd, 0)
  return (
    <Page title={of.name} above={above} aside={<><Status value={of.status} />{isAsleep(of) && !of.error && <Badge>idle</Badge>}</>} actions={<>
      <CurlButton call={{ path: `/v1/dedicated-endpoints/${of.id}` }} small={false} /><Actions of={of} held={held} />
    </>}>
      <p role="status" className="mb-3 text-sm text-soft">{stateWords(of)}</p>
      {of.error && <Problem of={of} error={of.error} />}
      <Stats>
        <Stat label="Replicas ready" value={replicasText(of)} hint={of.min_replicas === 0 ? `none after ${seconds(of.idle_timeout_seconds)} without a request` : 'of the least and the most'} />
        <Stat label="An hour" value={<Money usd={of.hourly_usd} />} hint={of.max_replicas > 1 ? <>of one replica; at most <Money usd={mostHourly(of)} /> with all</> : 'while its engine is ready'} />
        <Stat label="Spent" value={<Money usd={of.spent_usd} />} hint="charged every minute" to="wallet" query={{ by: 'model', key: of.id }} />
        <Stat label="Set aside" loading={!wallet.data && !wallet.error} value={<Money usd={wallet.data && held} />} hint={held > 0 ? 'comes back where it is not spent' : 'nothing, while no engine runs'} to="wallet" />
        <Stat label="Last use" value={of.last_used_at ? <Time value={of.last_used_at} relative /> : 'never'} />
      </Stats>
      <div className="mt-4 grid items-start gap-x-4 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <CallIt of={of} />
        <Description of={of} />
      </div>
    </Page>
  )
}

function CallIt({ of }: { of: Shape }) {
  const [chosen, setChosen] = useState('curl')
  return (
    <Section title="Call it" aside="with any key of this workspace">
      <p className="mb-2 flex flex-wrap items-center gap-x-2 text-sm">Model <Id value={of.model} /></p>
      <Tabs label="Language" value={chosen} onChange={setChosen} tabs={snippets(of.model, location.origin).map((one) => ({ value: one.id, label: one.label, content: <Snippet text={one.text} /> }))} />
      <p className="mt-3 text-xs text-faint">Tokens cost nothing: the hour is paid. Exchanges are never logged, and an alias cannot point at it.</p>
    </Section>
  )
}

function Description({ of }: { of: Shape }) {
  const ws = useWorkspaceId()
  const { manages } = useWorkspace()
  const id = of.model_version_id ?? ''
  const version = useQuery({
    queryKey: ['model-version', ws, id], enabled: manages && id !== '',
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/model-versions/{id}', { params: { path: { id } }, signal })),
  })
  return (
    <Section title="What it is">
      <Facts rows={[
        ['Serves', <Served of={of} name={version.data?.name} />],
        ...(id ? [['Base model', of.base_model] as [string, string]] : []),
        ['A replica', `${of.gpu_count} × ${of.gpu_type}`],
        ['Replicas', `${of.min_replicas} to ${of.max_replicas}`],
        ['Idle time-out', of.min_replicas === 0 ? seconds(of.idle_timeout_seconds) : `none: at least ${of.min_replicas} always run`],
        ['An hour may cost', <Money usd={of.max_hourly_usd} />],
        ['Made', <Time value={of.created_at} />],
        ['Id', <Id value={of.id} />],
        ...(manages ? [['Changes', <A to="settings" query={{ tab: 'audit', subject: of.id }}>who started and stopped it</A>] as [string, React.ReactNode]] : []),
      ]} />
    </Section>
  )
}

/** Why it does not answer, with the last lines that its engine wrote. */
function Problem({ of, error }: { of: Shape; error: NonNullable<Shape['error']> }) {
  const bad = of.status === 'FAILED' || error.code !== 'engine_waits'
  return (
    <section role="alert" className={`mb-3 rounded-md border px-3 py-2.5 text-sm ${bad ? 'border-fail/50 bg-fail-ground' : 'border-warn/50 bg-warn-ground'}`}>
      <div className="flex items-start gap-2.5">
        <OctagonAlertIcon size={16} className={`mt-0.5 shrink-0 ${bad ? 'text-fail' : 'text-warn'}`} aria-hidden />
        <div className="min-w-0 flex-1">
          <p className="font-medium break-words">{sentence(error.message)}</p>
          <p className="text-soft">{remedies[error.code]}{error.code === 'insufficient_balance' && <> <A to="wallet">Wallet</A></>}</p>
        </div>
      </div>
      {error.lines.length > 0 && <Lines of={error.lines} />}
    </section>
  )
}

const remedies: Record<NonNullable<Shape['error']>['code'], string> = {
  engine_failed: 'The last lines of the engine say why. Start it again when that is mended; the operator of the server can help.',
  engine_waits: 'Nothing is charged while it waits.',
  insufficient_balance: 'Top up the wallet, and start it again.',
}

/** What an engine wrote before it ended, the newest in view. */
function Lines({ of }: { of: string[] }) {
  const box = useRef<HTMLPreElement>(null)
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight
  }, [of.length])
  return (
    <div className="mt-2.5">
      <p className="flex items-center text-xs text-soft">The last {of.length === 1 ? 'line' : `${of.length} lines`} of the engine<span className="ml-auto"><CopyButton text={of.join('\n')} what="the lines" /></span></p>
      <pre ref={box} tabIndex={0} aria-label="The last lines of the engine" role="region"
        className="mt-1 max-h-80 overflow-auto rounded border border-line bg-ground p-2.5 font-mono text-xs leading-5 text-text">{of.join('\n')}</pre>
    </div>
  )
}
