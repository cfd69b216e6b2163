import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { PlusIcon } from 'lucide-react'
import { useWorkspace } from '../../api/session'
import { useCommands } from '../../app/commands'
import { percent, plural } from '../../format'
import { useKeys } from '../../keys'
import { oneOf, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Badge, Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { Select } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, Progress, SkeletonLines, Time } from '../../ui/Values'
import { grpoQuery, jobsQuery, trainableQuery } from './api'
import { NewGrpo } from './NewGrpo'
import { NewJob } from './NewJob'
import { NoWorker } from './NoWorker'
import { isFinal, joined, methodNames, shown, shows, type Row, type Show } from './rows'

const columns: Column<Row>[] = [
  {
    id: 'run', header: 'Run', width: 'minmax(180px,1.6fr)', card: 'title',
    cell: (row) => <span className="font-medium" title={row.id}>{row.job?.output_model ?? row.baseModel}</span>,
  },
  { id: 'method', header: 'Method', width: 'minmax(130px,1fr)', cell: (row) => methodNames[row.method] ?? row.method },
  {
    id: 'status', header: 'Status', width: '150px', card: 'title',
    cell: (row) => <span className="flex gap-1"><Status value={row.status} />{row.held && <Badge tone="fail">held</Badge>}{waits(row) && <Badge tone="info">candidate</Badge>}</span>,
  },
  { id: 'progress', header: 'Steps', width: '170px', named: true, cell: (row) => <Steps row={row} /> },
  { id: 'reward', header: 'Reward', width: '84px', right: true, card: 'none', cell: (row) => row.grpo?.reward_mean == null ? <span className="text-faint">–</span> : row.grpo.reward_mean.toFixed(3) },
  { id: 'spent', header: 'Cost', width: '90px', right: true, cell: (row) => <Money usd={row.spent + row.accrued} /> },
  { id: 'budget', header: 'Budget', width: '90px', right: true, card: 'none', cell: (row) => <Money usd={row.budget} /> },
  { id: 'made', header: 'Made', width: '90px', card: 'none', cell: (row) => <Time value={row.createdAt} relative /> },
]

const waits = (row: Row) => Boolean(row.grpo?.candidate && !row.grpo.candidate.gate)

function Steps({ row }: { row: Row }) {
  if (row.totalSteps === 0) return <span className="text-faint">–</span>
  return isFinal(row.status) ? <span>{row.step} of {row.totalSteps} <span className="text-faint">{percent(row.progress, 0)}</span></span>
    : <Progress label="Steps that are done" done={row.step} total={row.totalSteps} />
}

const names: Record<Show, string> = { '': 'All runs', running: 'Not ended', held: 'Held', candidates: 'Candidates that wait', ended: 'Ended' }
const schema = { show: oneOf(shows, ''), new: oneOf(['', 'job', 'grpo'], '') }

/** Fine-tuning jobs and GRPO runs in one list. */
export function Runs() {
  const workspace = useWorkspace()
  const navigate = useNavigate()
  const [state, set] = useQueryState(schema)
  const { may, why } = useAllowed()
  const jobs = useQuery(jobsQuery(workspace.id))
  const runs = useQuery(grpoQuery(workspace.id, workspace.manages))
  const models = useQuery(trainableQuery(workspace.id))
  const start = (kind: 'job' | 'grpo') => may && set({ new: kind })
  useKeys('Training', [{ keys: 'n', label: 'New fine-tuning job', run: () => start('job') }, { keys: 'N', label: 'New GRPO run', run: () => start('grpo') }])
  useCommands([
    { id: 'train job', label: 'New fine-tuning job', run: () => start('job') }, { id: 'train grpo', label: 'New GRPO run', run: () => start('grpo') },
  ])
  const all = joined(jobs.data ?? [], runs.data?.runs ?? [])
  const rows = shown(all, state.show as Show)
  const error = jobs.error ?? runs.error
  const known = jobs.data && models.data && (runs.data || !workspace.manages)
  const noWorker = models.data?.length === 0
  const waiting = runs.data?.candidates_waiting ?? 0
  const buttons = <>
    <Button disabled={!may || noWorker} title={why ?? (noWorker ? 'There is no worker to train it' : undefined)} icon={<PlusIcon size={14} />} onClick={() => start('grpo')}>GRPO run</Button>
    <Button look="primary" disabled={!may || noWorker} title={why ?? (noWorker ? 'There is no worker to train it' : undefined)} icon={<PlusIcon size={14} />} onClick={() => start('job')}>Fine-tuning job</Button>
  </>
  return (
    <>
      {error && <Refusal error={error} retry={() => void Promise.all([jobs.refetch(), runs.refetch()])} />}
      {!known && !error && <SkeletonLines />}
      {known && noWorker && <NoWorker />}
      {known && !noWorker && all.length === 0 && (
        <EmptyState title="Nothing was trained yet" action={buttons} text={<>A fine-tuning job teaches a model your examples: a dataset of logged exchanges, a file, or what a reward
          session scored. A GRPO run lets a measured judge reward what the model tries. Both set a budget aside first, survive the death of a worker, and end with a signed model.</>} />
      )}
      {all.length > 0 && (
        <Section title="Runs" aside={waiting > 0 ? `${plural(waiting, 'candidate')} ${waiting === 1 ? 'waits' : 'wait'} for an eval` : undefined} flush actions={<>
          <Select aria-label="Which runs" value={state.show} onChange={(show) => set({ show: show as Show }, { push: true })}
            options={shows.map((value) => ({ value, label: names[value] }))} />
          <CurlButton call={{ path: '/v1/fine-tuning/jobs' }} />{buttons}
        </>}>
          {rows.length === 0 ? <p className="px-3.5 py-3 text-sm text-soft">None of the {all.length} is that.</p>
            : <Table label="Runs" keys columns={columns} rows={rows} rowKey={(row) => row.id} marked={(row) => row.held}
              onOpen={(row) => void navigate({ to: `/w/${workspace.id}/training/runs/${row.id}` as never })} />}
        </Section>
      )}
      {state.new === 'job' && may && <NewJob onClose={() => void navigate({ to: '.', search: {} as never, replace: true })} />}
      {state.new === 'grpo' && may && <NewGrpo onClose={() => void navigate({ to: '.', search: {} as never, replace: true })} />}
    </>
  )
}
