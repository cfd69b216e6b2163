import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { SplitIcon } from 'lucide-react'
import { data, v1 } from '../../api/client'
import { curl } from '../../api/curl'
import { useWorkspaceId } from '../../api/session'
import { useCommands } from '../../app/commands'
import { useForward } from '../../forward'
import { useKeys } from '../../keys'
import { flag, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Badge, toneOf } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { SkeletonLines, Time } from '../../ui/Values'
import { EditAlias } from './EditAlias'
import { verdictWords, type Alias, type Gate } from './gate'

export function Verdict({ gate }: { gate?: Gate }) {
  if (!gate) return <span className="text-faint">no gate</span>
  const tone = gate.verdict === 'roll_back' ? 'fail' : gate.verdict === 'collecting' ? 'info' : gate.verdict === 'paused' ? 'warn' : toneOf(gate.verdict)
  return <Badge tone={tone} title={gate.reason}>{verdictWords[gate.verdict]}</Badge>
}

const columns: Column<Alias>[] = [
  { id: 'name', header: 'Name', width: 'minmax(120px,1.2fr)', cell: (alias) => <span className="font-medium">{alias.name}</span>, card: 'title' },
  { id: 'target', header: 'Target', width: 'minmax(140px,1.6fr)', cell: (alias) => alias.target_model },
  {
    id: 'canary', header: 'Canary', width: 'minmax(140px,1.6fr)', card: 'none',
    cell: (alias) => alias.canary_model || <span className="text-faint">none</span>,
  },
  {
    id: 'percent', header: 'Split', width: '80px', right: true,
    cell: (alias) => alias.canary_percent ? `${alias.canary_percent} %` : <span className="text-faint">–</span>,
  },
  { id: 'verdict', header: 'Gate', width: '120px', cell: (alias) => <Verdict gate={alias.gate} />, card: 'title' },
  { id: 'updated', header: 'Changed', width: '100px', cell: (alias) => <Time value={alias.updated_at} relative /> },
]

const schema = { new: flag }

export default function Aliases() {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const [state, set] = useQueryState(schema)
  const { may, why } = useAllowed()
  useForward(['alias', 'job'], 'aliases')
  const list = useQuery({
    queryKey: ['aliases', ws], refetchInterval: 30_000,
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/aliases', { params: { query: { limit: 200 } }, signal })),
  })
  const open = (name: string) => void navigate({ to: `/w/${ws}/aliases/${encodeURIComponent(name)}` as never })
  const create = () => may && set({ new: true })
  useKeys('Aliases', [{ keys: 'n', label: 'New alias', run: create }])
  useCommands([{ id: 'alias new', label: 'New alias', run: create }])
  const body = { name: 'support', target_model: 'sim/chat' }
  return (
    <Page title="Aliases" actions={<>
      <CurlButton call={{ path: '/v1/aliases' }} small={false} />
      <Button look="primary" icon={<SplitIcon size={14} />} disabled={!may} title={why} onClick={create}>New alias</Button>
    </>}>
      {list.error && <Refusal error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <SkeletonLines />}
      {list.data?.data.length === 0 && (
        <EmptyState title="No aliases yet" snippet={curl({ method: 'PUT', path: '/v1/aliases', body })}
          text="An alias is a name of yours for a model. Programs call the name; you repoint it, split its traffic with a canary, and let a judge decide, without a deploy."
          action={<Button look="primary" disabled={!may} title={why} onClick={create}>Make one here</Button>} />
      )}
      {list.data && list.data.data.length > 0 && (
        <Section title="All aliases" aside={String(list.data.data.length)} flush>
          <Table label="Aliases" keys columns={columns} rows={list.data.data} rowKey={(alias) => alias.name} onOpen={(alias) => open(alias.name)} />
        </Section>
      )}
      {state.new && <EditAlias onClose={() => set({ new: false })} onDone={(alias) => open(alias.name)} />}
    </Page>
  )
}
