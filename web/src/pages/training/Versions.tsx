import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useWorkspace } from '../../api/session'
import { bytes } from '../../format'
import { Badge } from '../../ui/Badge'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { SkeletonLines, Time } from '../../ui/Values'
import { useModels } from '../../ui/ModelPicker'
import { versionsQuery, type Version } from './api'
import { methodNames } from './rows'

/** callable has the ids of the models that can be called; nothing until it is known. */
const columns = (callable?: Set<string>): Column<Version>[] => [
  { id: 'name', header: 'Model', width: 'minmax(200px,1.8fr)', card: 'title', cell: (one) => <span className="font-medium">{one.name}</span> },
  { id: 'base', header: 'Made from', width: 'minmax(130px,1fr)', cell: (one) => one.parent_id ? `a version of ${one.base_model}` : one.base_model },
  { id: 'method', header: 'By', width: 'minmax(130px,1fr)', card: 'none', cell: (one) => methodNames[one.method] ?? one.method },
  { id: 'step', header: 'Step', width: '80px', right: true, card: 'none', cell: (one) => one.source.step },
  { id: 'size', header: 'Size', width: '100px', right: true, card: 'title', cell: (one) => bytes(one.bytes) },
  { id: 'sha', header: 'SHA-256', width: '140px', card: 'none', cell: (one) => <code className="font-mono text-xs">{one.artifact_sha256.slice(0, 12)}…</code> },
  {
    id: 'use', header: 'Use', width: '130px',
    cell: (one) => <span className="flex gap-1">{callable && <Badge tone={callable.has(one.name) ? 'pass' : 'neutral'}>{callable.has(one.name) ? 'callable' : 'not callable'}</Badge>}
      {one.adopted_at && <Badge tone="accent">adopted</Badge>}</span>,
  },
  { id: 'made', header: 'Made', width: '100px', cell: (one) => <Time value={one.created_at} relative /> },
]

/** The models that runs made. */
export function Versions() {
  const workspace = useWorkspace()
  const navigate = useNavigate()
  const list = useQuery(versionsQuery(workspace.id))
  const models = useModels().data
  return (
    <>
      {list.error && <Refusal error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <SkeletonLines />}
      {list.data?.data.length === 0 && (
        <EmptyState title="No model was made yet" text={<>A run that succeeds makes a model version: its files, what it was made of back to the base model, and a signature over both. Start one in <A to="training">Runs</A>.</>} />
      )}
      {list.data && list.data.data.length > 0 && (
        <Section title="Models" aside={String(list.data.data.length)} flush actions={<CurlButton call={{ path: '/v1/model-versions' }} />}>
          <Table label="Models" keys columns={columns(models && new Set(models.map((model) => model.id)))} rows={list.data.data} rowKey={(one) => one.id}
            onOpen={(one) => void navigate({ to: `/w/${workspace.id}/training/models/${one.id}` as never })} />
        </Section>
      )}
    </>
  )
}
