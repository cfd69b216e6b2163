import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { PlusIcon } from 'lucide-react'
import { useWorkspaceId } from '../../api/session'
import { count } from '../../format'
import { useKeys } from '../../keys'
import { flag, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Badge, Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, SkeletonLines, Time } from '../../ui/Values'
import { trainableQuery } from './api'
import { NewRaft } from './NewRaft'
import { NoWorker } from './NoWorker'
import { roundsQuery, type Measure, type Round } from './raft'

const reward = (of: Measure | null) => of ? <span title={`of ${count(of.n)} held-out prompts`}>{of.mean.toFixed(3)} <span className="text-faint">{of.lower.toFixed(2)}–{of.upper.toFixed(2)}</span></span> : <span className="text-faint">–</span>

const columns: Column<Round>[] = [
  { id: 'round', header: 'Round', width: '80px', card: 'title', cell: (one) => <span className="font-medium">{one.round}{one.rounds > 1 && ` of ${one.rounds}`}</span> },
  { id: 'model', header: 'From', width: 'minmax(150px,1.4fr)', card: 'title', cell: (one) => one.base_model },
  { id: 'status', header: 'Status', width: '170px', cell: (one) => <span className="flex gap-1"><Status value={one.status} />{one.status === 'RUNNING' && <Badge>{one.stage}</Badge>}</span> },
  { id: 'kept', header: 'Kept', width: '80px', right: true, named: true, cell: (one) => count(one.accepted) },
  { id: 'before', header: 'Reward before', width: '150px', right: true, card: 'none', cell: (one) => reward(one.reward_before) },
  { id: 'after', header: 'Reward after', width: '150px', right: true, card: 'none', cell: (one) => reward(one.reward_after) },
  {
    id: 'gain', header: 'Gain', width: '110px', right: true, named: true,
    cell: (one) => one.improvement ? <span className={one.improvement.lower > 0 ? 'text-pass' : 'text-warn'}>{one.improvement.mean >= 0 ? '+' : '−'}{Math.abs(one.improvement.mean).toFixed(3)}</span> : <span className="text-faint">–</span>,
  },
  { id: 'spent', header: 'Cost', width: '90px', right: true, card: 'none', cell: (one) => <Money usd={one.spent_usd} /> },
  { id: 'made', header: 'Made', width: '90px', card: 'none', cell: (one) => <Time value={one.created_at} relative /> },
]

const schema = { new: flag }

/** RAFT rounds, the newest first. */
export function Rounds() {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const [state, set] = useQueryState(schema)
  const { may, why } = useAllowed()
  const list = useQuery(roundsQuery(ws))
  const models = useQuery(trainableQuery(ws))
  const noWorker = models.data?.length === 0
  const create = () => may && !noWorker && set({ new: true })
  useKeys('RAFT', [{ keys: 'n', label: 'New round', run: create }])
  const button = <Button look="primary" icon={<PlusIcon size={14} />} disabled={!may || noWorker} title={why ?? (noWorker ? 'There is no worker to train it' : undefined)} onClick={create}>New round</Button>
  return (
    <>
      {list.error && <Refusal error={list.error} retry={() => void list.refetch()} />}
      {(list.isPending || models.isPending) && <SkeletonLines />}
      {list.data?.length === 0 && models.data && (noWorker ? <NoWorker /> : (
        <EmptyState title="No rounds yet" action={button} text={<>A RAFT round lets a model answer each prompt several times, keeps the answers that a measured judge grades best, and fine-tunes
          the model on them. The reward is measured on held-out prompts before and after, with intervals; a next round begins only if the gain is proved.</>} />
      ))}
      {list.data && list.data.length > 0 && (
        <Section title="Rounds" aside={String(list.data.length)} flush actions={<><CurlButton call={{ path: '/v1/raft/rounds' }} />{button}</>}>
          <Table label="Rounds" keys columns={columns} rows={list.data} rowKey={(one) => one.id} onOpen={(one) => void navigate({ to: `/w/${ws}/training/rounds/${one.id}` as never })} />
        </Section>
      )}
      {state.new && may && <NewRaft onClose={() => void navigate({ to: '.', search: { tab: 'rounds' } as never, replace: true })} />}
    </>
  )
}
