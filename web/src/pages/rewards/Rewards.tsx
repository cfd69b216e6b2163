import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { GaugeIcon } from 'lucide-react'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useCommands } from '../../app/commands'
import { useForward } from '../../forward'
import { count } from '../../format'
import { useKeys } from '../../keys'
import { flag, oneOf, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Badge, Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState, Snippet } from '../../ui/EmptyState'
import { Select } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Tabs } from '../../ui/Tabs'
import { Money, SkeletonLines, Time } from '../../ui/Values'
import type { Session } from './anchor'
import { NewSession } from './NewSession'
import { snippets } from './snippets'

const columns: Column<Session>[] = [
  { id: 'label', header: 'Label', width: 'minmax(140px,1.6fr)', cell: (one) => <span className="font-medium">{one.label || one.id}</span>, card: 'title' },
  {
    id: 'status', header: 'Status', width: '150px', card: 'title',
    cell: (one) => <span className="flex gap-1"><Status value={one.status} />{one.anchor.held && <Badge tone="fail">held</Badge>}</span>,
  },
  { id: 'scored', header: 'Scored', width: '90px', right: true, named: true, cell: (one) => count(one.scored) },
  { id: 'spent', header: 'Spent', width: '90px', right: true, cell: (one) => <Money usd={one.spent_usd} /> },
  { id: 'budget', header: 'Budget', width: '90px', right: true, cell: (one) => <Money usd={one.budget_usd} />, card: 'none' },
  { id: 'anchor', header: 'Anchor', width: 'minmax(120px,1fr)', cell: (one) => one.anchor.criterion_name ?? <span className="text-faint">none</span>, card: 'none' },
  { id: 'pinned', header: 'Pinned step', width: '110px', cell: (one) => one.anchor.pinned_step ?? '–', card: 'none' },
  { id: 'made', header: 'Made', width: '90px', cell: (one) => <Time value={one.created_at} relative /> },
]

const statuses = ['', 'ACTIVE', 'COMPLETED', 'OVERBUDGET', 'STOPPED', 'FAILED'] as const
const schema = { status: oneOf(statuses, ''), new: flag }

export default function Rewards() {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const [state, set] = useQueryState(schema)
  const { may, why } = useAllowed()
  useForward(['session'], 'rewards')
  const query = { limit: 200, ...(state.status && { status: state.status }) }
  const list = useQuery({
    queryKey: ['reward-sessions', ws, state.status], refetchInterval: 15_000,
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/reward/sessions', { params: { query: query as never }, signal })),
  })
  const open = (id: string) => void navigate({ to: `/w/${ws}/rewards/${id}` as never })
  const create = () => may && set({ new: true })
  useKeys('Rewards', [{ keys: 'n', label: 'New session', run: create }])
  useCommands([{ id: 'reward new', label: 'New reward session', run: create }])
  return (
    <Page title="Rewards" actions={<>
      <Select aria-label="Status" value={state.status} onChange={(status) => set({ status: status as typeof state.status }, { push: true })}
        options={[{ value: '', label: 'Any status' }, ...statuses.slice(1).map((value) => ({ value, label: value.toLowerCase() }))]} />
      <CurlButton call={{ path: '/v1/reward/sessions' }} small={false} />
      <Button look="primary" icon={<GaugeIcon size={14} />} disabled={!may} title={why} onClick={create}>New session</Button>
    </>}>
      {list.error && <Refusal error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <SkeletonLines />}
      {list.data?.data.length === 0 && (state.status ? <p className="text-sm text-soft">No session is {state.status.toLowerCase()}.</p> : <>
        <EmptyState title="No reward sessions yet" action={<Button look="primary" disabled={!may} title={why} onClick={create}>Begin one</Button>}
          text={<>A reward session gives a trainer rewards by judges whose errors were measured, out of a budget that is held first. An anchor, another
            judge, checks samples, and holds the session when the run has learnt to please the judge instead of people. It needs
            a <A to="judges">measured judge</A>.</>} />
        <Section title="What your trainer needs"><Trainers session="rs_…" /></Section>
      </>)}
      {list.data && list.data.data.length > 0 && (
        <Section title="Sessions" aside={String(list.data.data.length)} flush>
          <Table label="Reward sessions" keys columns={columns} rows={list.data.data} rowKey={(one) => one.id} onOpen={(one) => open(one.id)} />
        </Section>
      )}
      {state.new && <NewSession onClose={() => set({ new: false })} onMade={open} />}
    </Page>
  )
}

export function Trainers({ session, token }: { session: string; token?: string }) {
  const [chosen, setChosen] = useState('trl')
  return <Tabs label="Trainer" value={chosen} onChange={setChosen} tabs={snippets(session, location.origin, token).map((one) => ({
    value: one.id, label: one.label, content: <><p className="text-sm text-soft">{one.note}</p><Snippet text={one.text} /></>,
  }))} />
}
