import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { PlusIcon } from 'lucide-react'
import { curl } from '../../api/curl'
import { useWorkspace } from '../../api/session'
import { useCommands } from '../../app/commands'
import { useForward } from '../../forward'
import { useKeys } from '../../keys'
import { flag, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CopyButton, CurlButton } from '../../ui/Copy'
import { EmptyState, Snippet } from '../../ui/EmptyState'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, SkeletonLines, Time } from '../../ui/Values'
import { versionsQuery } from '../training/api'
import { endpointsQuery, enginesQuery, type Endpoint } from './api'
import { baseModels, replicasText, stateNote } from './endpoint'
import { NewEndpoint } from './NewEndpoint'

const columns = (names: Map<string, string>): Column<Endpoint>[] => [
  { id: 'name', header: 'Name', width: 'minmax(110px,1fr)', card: 'title', cell: (one) => <span className="font-medium">{one.name}</span> },
  {
    id: 'status', header: 'State', width: '185px', card: 'title',
    cell: (one) => <span className="flex items-center gap-1.5"><Status value={one.status} /><span className="truncate text-xs text-soft">{stateNote(one)}</span></span>,
  },
  {
    id: 'model', header: 'Model id', width: 'minmax(300px,1.6fr)', card: 'none',
    cell: (one) => (
      <span className="flex items-center gap-1" onClick={(event) => event.stopPropagation()}>
        <code className="truncate font-mono text-xs">{one.model}</code><CopyButton text={one.model} label="" what={`the model id of ${one.name}`} />
      </span>
    ),
  },
  { id: 'replicas', header: 'Replicas', width: '90px', named: true, cell: (one) => <span title="ready now, of the least and the most">{replicasText(one)}</span> },
  { id: 'hour', header: 'An hour', width: '90px', right: true, card: 'none', cell: (one) => <Money usd={one.hourly_usd} /> },
  { id: 'spent', header: 'Spent', width: '104px', right: true, named: true, cell: (one) => <Money usd={one.spent_usd} /> },
  { id: 'serves', header: 'Serves', width: 'minmax(150px,1.4fr)', cell: (one) => <Served of={one} name={names.get(one.model_version_id ?? '')} /> },
  { id: 'used', header: 'Last use', width: '90px', card: 'none', cell: (one) => <Time value={one.last_used_at} relative /> },
]

/** What an endpoint serves: a trained version, or a base model. Members cannot open versions. */
export function Served({ of, name }: { of: Endpoint; name?: string }) {
  const { manages } = useWorkspace()
  if (!of.model_version_id) return <>{of.base_model}</>
  const shown = name ?? `a version of ${of.base_model}`
  return manages ? <A to={`training/models/${of.model_version_id}`} onClick={(event) => event.stopPropagation()}>{shown}</A> : <>{shown}</>
}

const state = { new: flag }

/** Models on engines of the workspace's own, paid by the second in which they run. */
export function Endpoints() {
  const workspace = useWorkspace()
  const navigate = useNavigate()
  const [at, set] = useQueryState(state)
  const { may, why } = useAllowed()
  useForward(['endpoint'], 'training/endpoints')
  const list = useQuery(endpointsQuery(workspace.id))
  const engines = useQuery(enginesQuery(workspace.id))
  const rows = list.data ?? []
  const versions = useQuery(versionsQuery(workspace.id, workspace.manages && rows.some((one) => one.model_version_id)))
  const noEngine = engines.data?.length === 0
  const create = () => may && !noEngine && set({ new: true })
  useKeys('Endpoints', [{ keys: 'n', label: 'New endpoint', run: create }])
  useCommands([{ id: 'endpoint new', label: 'New dedicated endpoint', run: create }])
  const error = list.error ?? engines.error
  const button = (
    <Button look="primary" icon={<PlusIcon size={14} />} disabled={!may || noEngine} title={why ?? (noEngine ? 'The server has no engine' : undefined)} onClick={create}>Endpoint</Button>
  )
  return (
    <>
      {error && <Refusal error={error} retry={() => void Promise.all([list.refetch(), engines.refetch()])} />}
      {(!list.data || !engines.data) && !error && <SkeletonLines />}
      {list.data && engines.data && rows.length === 0 && (noEngine ? <NoEngine /> : (
        <EmptyState title="No dedicated endpoints yet" action={button} snippet={curl({ method: 'POST', path: '/v1/dedicated-endpoints', body: { name: 'support', baseModel: baseModels(engines.data, [])[0] ?? 'a base model' } })}
          text={<>A dedicated endpoint is a model on engines of your own: a base model, or one that was <A to="training" query={{ tab: 'models' }}>trained here</A>. Programs call it
            as <code>dedicated/…</code> with the keys of this workspace. It is paid by the second in which an engine is ready, not by token; it has no engine
            while nobody calls it, and costs nothing then. What is said to it is never logged. {why ? `${why}.` : ''}</>} />
      ))}
      {rows.length > 0 && (
        <Section title="Endpoints" aside={String(rows.length)} flush actions={<><CurlButton call={{ path: '/v1/dedicated-endpoints' }} />{button}</>}>
          <Table label="Endpoints" keys columns={columns(new Map(versions.data?.data.map((one) => [one.id, one.name])))} rows={rows} rowKey={(one) => one.id}
            marked={(one) => one.status === 'FAILED'} onOpen={(one) => void navigate({ to: `/w/${workspace.id}/training/endpoints/${one.id}` as never })} />
        </Section>
      )}
      {at.new && may && <NewEndpoint onClose={() => void navigate({ to: '.', search: { tab: 'endpoints' } as never, replace: true })} />}
    </>
  )
}

const configuration = `# in the server's configuration
serving:
  engines:
    - name: small             # the tiny models of the trainer; llama and vllm are built in too
training:
  prices: [cpu=0.10]          # dollars an hour of one`

/** Nothing can be served: what an operator has to write. */
const NoEngine = () => (
  <>
    <EmptyState title="This server has no engine" text={<>An engine is a program that serves a model: the trainer’s own for tiny models, llama.cpp on a machine without GPU, vLLM with GPUs. The
      operator of the server names those that it may start, and what an hour of a GPU costs. Then models run here on engines of your own, and are called as <code>dedicated/…</code>.</>} />
    <div className="mx-auto max-w-2xl"><Snippet text={configuration} /></div>
  </>
)
