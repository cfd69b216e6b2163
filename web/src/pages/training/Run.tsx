import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { OctagonPauseIcon } from 'lucide-react'
import { useWorkspaceId } from '../../api/session'
import { bytes, count, percent } from '../../format'
import { Badge, Status } from '../../ui/Badge'
import { buttonClass } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal, sentence } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Facts, Money, Progress, SkeletonLines, Stat, Stats, Time } from '../../ui/Values'
import { WhenSeen } from '../../ui/WhenSeen'
import { Actions } from './Actions'
import { checkpointsQuery, runQuery, useFollowed, type Checkpoint, type Event, type Grpo, type Job } from './api'
import { figure } from './curves'
import { Curves } from './Curves'
import { isFinal, methodNames, stateWords, type Row } from './rows'

/** One run: its curves, what it said, its checkpoints, what it costs, and how to end it. */
export default function Run() {
  const ws = useWorkspaceId()
  const { run: id } = useParams({ strict: false }) as { run: string }
  const run = useQuery(runQuery(ws, id))
  const above = <A to="training">Training</A>
  if (run.error) return <Page title="Run" above={above}><Refusal error={run.error} retry={() => void run.refetch()} /></Page>
  if (!run.data) return <Page title="Run" above={above}><SkeletonLines lines={10} /></Page>
  return <Loaded of={run.data} />
}

export const pathOf = (row: Row) => (row.kind === 'grpo' ? `/v1/grpo/runs/${row.id}` : `/v1/fine-tuning/jobs/${row.id}`)

function Loaded({ of }: { of: Row }) {
  const { followed, error, refetch } = useFollowed(of)
  const live = !isFinal(of.status)
  return (
    <Page title={of.job?.output_model ?? `${methodNames[of.method] ?? of.method} of ${of.baseModel}`} above={<A to="training">Training</A>}
      aside={<><Status value={of.status} />{of.held && <Badge tone="fail">held</Badge>}</>}
      actions={<><CurlButton call={{ path: pathOf(of) }} small={false} /><Actions of={of} /></>}>
      <Notice of={of} />
      <Cost of={of} live={live} />
      <div className="mt-4 grid items-start gap-x-4 xl:grid-cols-[minmax(0,2fr)_minmax(0,1fr)]">
        <div className="min-w-0">
          {error && <div className="mb-4"><Refusal error={error} retry={() => void refetch()} /></div>}
          {followed ? <Curves curves={followed.curves} live={live} /> : !error && <Section title="Curves"><SkeletonLines lines={8} /></Section>}
          {of.kind === 'job' && <WhenSeen height={120}><Checkpoints of={of} /></WhenSeen>}
        </div>
        <div className="min-w-0">
          {of.grpo && <Reward run={of.grpo} />}
          <Made of={of} />
          {followed && <Log messages={followed.messages} />}
        </div>
      </div>
    </Page>
  )
}

/** What somebody has to know or do now: held, paused, failed, waiting. */
function Notice({ of }: { of: Row }) {
  if (of.held && of.grpo) {
    return (
      <section role="alert" className="mb-3 flex flex-wrap items-start gap-3 rounded-md border border-fail/50 bg-fail-ground px-3 py-2.5 text-sm">
        <OctagonPauseIcon size={18} className="mt-0.5 shrink-0 text-fail" aria-hidden />
        <div className="min-w-0 flex-1 basis-64">
          <p className="font-medium">The anchor holds this run{of.status === 'RUNNING' ? ': it saves a checkpoint, and pauses' : ''}.</p>
          <p className="text-soft">{sentence(of.grpo.held_reason ?? 'The reward diverged from the anchor')}</p>
          <p className="text-soft">Look at the session, mend the judge or the run, and release it: the run then goes on by itself. Or stop the run: the last checkpoint that passed a check becomes its candidate.</p>
        </div>
        <A to={`rewards/${of.grpo.reward_session_id}`} className={buttonClass('primary')}>Its reward session</A>
      </section>
    )
  }
  if (of.status === 'FAILED') {
    return <div className="mb-3"><Refusal title={of.job?.error?.code === 'budget_exhausted' ? 'The budget is spent' : 'It failed'} error={new Error(of.why ?? 'Nothing more is known')} /></div>
  }
  const words = stateWords(of)
  if (!words) return null
  return <p className="mb-3 rounded-md bg-info-ground px-3 py-2 text-sm text-info">{words}{of.why && of.status === 'PAUSED' ? ` ${sentence(of.why)}` : ''}</p>
}

function Cost({ of, live }: { of: Row; live: boolean }) {
  const cost = of.spent + of.accrued
  const gpu = of.job ?? of.grpo
  return (
    <Stats>
      <div className="card min-w-0 px-3.5 py-2.5">
        <span className="block text-xs text-soft">Steps</span>
        <span className="mt-0.5 block text-xl font-semibold max-sm:text-lg">{of.totalSteps ? percent(of.progress, 0) : '–'}</span>
        {of.totalSteps > 0 ? <Progress label="Steps that are done" done={of.step} total={of.totalSteps} /> : <span className="text-xs text-faint">not known yet</span>}
      </div>
      <Stat label={live ? 'Cost so far' : 'Cost'} value={<Money usd={cost} />} hint={of.accrued > 0 ? <><Money usd={of.accrued} /> of it accrues</> : of.grpo ? <><Money usd={of.grpo.reward_spent_usd} /> of it for judges</> : 'charged'} />
      <Stat label={live ? 'Budget, held' : 'Budget'} value={<Money usd={of.budget} />} to="wallet"
        hint={live ? <><Money usd={Math.max(0, of.budget - cost)} /> is left</> : <><Money usd={Math.max(0, of.budget - of.spent)} /> came back</>} />
      <Stat label={live ? 'Estimated finish' : 'Ended'} value={<Time value={live ? of.estimatedFinish : of.finishedAt} relative />}
        hint={live && !of.estimatedFinish ? 'after its first steps' : <Time value={live ? of.estimatedFinish : of.finishedAt} short />} />
      <Stat label="Trained on" value={count(of.tokens)} hint={`tokens${gpu?.gpu_type ? `, ${count(gpu.gpu_seconds)} s of ${gpu.gpu_count} × ${gpu.gpu_type}` : ''}`} />
    </Stats>
  )
}

function Reward({ run }: { run: Grpo }) {
  return (
    <Section title="Reward" aside="of the last step">
      <Facts rows={[
        ['Mean', run.reward_mean === null ? '–' : <span>{run.reward_mean.toFixed(3)}{run.reward_std !== null && <span className="text-faint"> ± {run.reward_std.toFixed(3)}</span>}</span>],
        ['KL', run.kl === null ? '–' : figure(run.kl)],
        ['Judge', <A to={`judges/${run.criterion_id}`}>its certificate</A>],
        ['Anchor', run.anchor_criterion_id ? <A to={`judges/${run.anchor_criterion_id}`}>an independent judge</A> : <span className="text-warn">none: nothing notices when the judge is gamed</span>],
        ['Session', <A to={`rewards/${run.reward_session_id}`}>budget and checks</A>],
        ['Candidate', run.candidate ? <span><A to={`training/models/${run.candidate.model_version_id}`}>of step {run.candidate.step}</A>{' '}
          <span className="text-soft">{run.candidate.gate ?? 'waits for an eval against its base'}{run.candidate.gate_reason && `: ${run.candidate.gate_reason}`}</span></span> : 'when it has ended'],
      ]} />
    </Section>
  )
}

const data = (job: Job): [string, React.ReactNode] => {
  if (job.dataset_id) return ['Data', <A to={`datasets/${job.dataset_id}`}>a dataset</A>]
  if (job.reward_session_id) return ['Data', <A to={`rewards/${job.reward_session_id}`}>what a session scored</A>]
  return ['Data', job.training_file ? <Id value={job.training_file} /> : '–']
}

function Made({ of }: { of: Row }) {
  const h = of.job?.hyperparameters
  return (
    <Section title="Made of">
      <Facts rows={[
        ...(of.versionId ? [['Model', <A to={`training/models/${of.versionId}`} className="link font-medium">{of.job?.output_model ?? 'the candidate'}</A>] as [string, React.ReactNode]] : []),
        ['Base model', of.baseModel],
        ...(of.job ? [data(of.job)] : []),
        ...(of.grpo ? [['Prompts', <A to={`datasets/${of.grpo.dataset_id}`}>of a dataset</A>], ['Groups', `of ${of.grpo.group_size}, KL ${of.grpo.kl_beta}`]] as [string, React.ReactNode][] : []),
        ...(h ? [['Epochs', `${h.epochs}${h.max_steps ? `, at most ${h.max_steps} steps` : ''}`], ['Batch', `${h.batch_size}${h.gradient_accumulation > 1 ? ` × ${h.gradient_accumulation}` : ''}`],
          ['Learning rate', figure(h.learning_rate)], ['Weights', h.lora_rank ? `LoRA, rank ${h.lora_rank}` : 'all of them']] as [string, React.ReactNode][] : []),
        ['Seed', String((of.job ?? of.grpo)!.seed)],
        ['Attempt', String((of.job ?? of.grpo)!.attempt)],
        ['Made', <Time value={of.createdAt} />],
        ['Id', <Id value={of.id} />],
      ]} />
    </Section>
  )
}

const tone = { info: 'text-soft', warn: 'text-warn', error: 'text-fail' }

function Log({ messages }: { messages: Event[] }) {
  return (
    <Section title="Log" aside={messages.length >= 200 ? 'the last messages' : undefined} flush>
      {messages.length === 0 ? <p className="px-3.5 py-3 text-sm text-soft">Nothing was said yet.</p> : (
        <ol tabIndex={0} aria-label="Messages, the newest first" className="max-h-80 overflow-y-auto">
          {[...messages].reverse().map((event) => (
            <li key={event.seq} className="border-b border-line px-3.5 py-1.5 text-sm last:border-b-0">
              <span className="mr-2 text-xs text-faint"><Time value={event.at} short />{event.step > 0 && ` · step ${event.step}`}</span>
              {event.level !== 'info' && <span className={`mr-1 text-xs font-medium ${tone[event.level]}`}>{event.level}</span>}
              <span className="break-words">{event.message}</span>
            </li>
          ))}
        </ol>
      )}
    </Section>
  )
}

/** What says how good a checkpoint is; how it was trained stands in the curves. */
const measured = (of: Checkpoint): [string, number][] =>
  Object.entries((of.metrics ?? {}) as Record<string, number>).filter(([name]) => /loss|reward|accurac/.test(name))

const columns: Column<Checkpoint>[] = [
  { id: 'step', header: 'Step', width: '90px', right: true, card: 'title', cell: (one) => <><span className="sm:hidden">Step </span>{count(one.step)}</> },
  {
    id: 'metrics', header: 'Measured', width: 'minmax(180px,2fr)',
    cell: (one) => measured(one).map(([name, value]) => `${name} ${figure(value)}`).join(', ') || <span className="text-faint">–</span>,
  },
  { id: 'bytes', header: 'Size', width: '100px', right: true, card: 'title', cell: (one) => bytes(one.bytes) },
  { id: 'sha', header: 'SHA-256', width: '140px', card: 'none', cell: (one) => <code className="font-mono text-xs">{one.sha256.slice(0, 12)}…</code> },
  { id: 'model', header: 'Model', width: '84px', card: 'none', cell: (one) => one.model_version_id ? <A to={`training/models/${one.model_version_id}`}>this one</A> : null },
  { id: 'made', header: 'Saved', width: '100px', card: 'none', cell: (one) => <Time value={one.created_at} relative /> },
]

function Checkpoints({ of }: { of: Row }) {
  const ws = useWorkspaceId()
  const step = Math.floor(of.step / Math.max(1, of.job?.hyperparameters.checkpoint_every ?? 50)) // a new one may be there
  const list = useQuery({ ...checkpointsQuery(ws, of.id, isFinal(of.status) ? -1 : step), placeholderData: (before) => before })
  return (
    <Section title="Checkpoints" aside={list.data && String(list.data.length)} flush actions={<CurlButton call={{ path: `${pathOf(of)}/checkpoints` }} />}>
      {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
      {list.isPending && <div className="p-3"><SkeletonLines lines={2} /></div>}
      {list.data?.length === 0 && <p className="px-3.5 py-3 text-sm text-soft">None yet: the first is saved after {count(of.job?.hyperparameters.checkpoint_every ?? 50)} steps, and one at the end.</p>}
      {list.data && list.data.length > 0 && <Table label="Checkpoints" columns={columns} rows={list.data} rowKey={(one) => one.id} />}
    </Section>
  )
}
