import { useQuery } from '@tanstack/react-query'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import type { components } from '../../api/v1'
import { IntervalPlot } from '../../chart/IntervalPlot'
import { LineChart } from '../../chart/LineChart'
import { count, duration, percent } from '../../format'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Select } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Facts, Money, Progress, SkeletonLines, Stat, Stats, Time } from '../../ui/Values'
import { WhenSeen } from '../../ui/WhenSeen'
import { Verdict } from './Aliases'
import { useCriteria } from './EditAlias'
import { autoText, missing, windowLeft, type Alias } from './gate'

type History = components['schemas']['GateHistory']
type Arm = components['schemas']['GateArm']

interface Props { alias: Alias; epoch: string; setEpoch: (epoch: string) => void; promote?: () => void }

/** What the gate knows: its verdict and why, the evidence over drawn requests, the arms. */
export function GateSection({ alias, epoch, setEpoch, promote }: Props) {
  const ws = useWorkspaceId()
  const gate = useQuery({
    queryKey: ['gate', ws, alias.name, epoch], refetchInterval: epoch ? false : 5000,
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/aliases/{name}/gate', {
      params: { path: { name: alias.name }, query: epoch ? { epoch } : {} }, signal,
    })),
  })
  if (gate.error) return <Refusal error={gate.error} retry={() => void gate.refetch()} />
  if (!gate.data) return <div className="min-h-dvh"><SkeletonLines lines={8} /></div>
  const report = gate.data
  const isCurrent = !epoch || epoch === report.epochs[0]?.epoch
  return (
    <>
      <Section title="Canary gate" aside={<Verdict gate={report} />} actions={<>
        {report.epochs.length > 1 && (
          <Select aria-label="Epoch" value={epoch || report.epochs[0]?.epoch || ''} onChange={(id) => setEpoch(id === report.epochs[0]?.epoch ? '' : id)}
            options={report.epochs.map((one, i) => ({ value: one.epoch ?? '', label: epochName(one, i) }))} />
        )}
        {isCurrent && report.verdict === 'promote' && alias.canary_model && promote && <Button look="primary" onClick={promote}>Promote the canary</Button>}
        <CurlButton call={{ path: `/v1/aliases/${alias.name}/gate` }} />
      </>}>
        <p className="text-base">{report.reason || 'It has counted nothing yet.'}</p>
        {isCurrent && <Next alias={alias} report={report} />}
      </Section>
      <Pictures alias={alias} report={report} />
      <Arms report={report} alias={alias} />
    </>
  )
}

const epochName = (one: History['epochs'][number], i: number) =>
  `${i === 0 && !one.ended_at ? 'Now' : (one.started_at ?? '').slice(0, 10)} · ${one.arms[1]?.model ?? ''} · ${one.verdict.replace('_', ' ')}`

function Next({ alias, report }: { alias: Alias; report: History }) {
  const todo = report.verdict === 'collecting' ? missing(alias, report) : []
  const left = windowLeft(alias, report)
  const hours = alias.gate_window_hours ?? 0
  return (
    <div className="mt-2 space-y-2 text-sm text-soft">
      <p><span className="font-medium text-text">{alias.gate_mode === 'auto' ? 'Auto. ' : 'Recommends only. '}</span>{autoText(alias, report)}</p>
      {todo.length > 0 && <>
        <p className="font-medium text-text">Why not yet</p>
        <ul className="list-disc space-y-0.5 pl-5">{todo.map((line) => <li key={line}>{line}</li>)}</ul>
      </>}
      {left !== null && report.verdict !== 'idle' && (
        <div className="flex flex-wrap items-center gap-x-3"><span className="shrink-0">Window</span>
          <div className="min-w-40 flex-1"><Progress label="Hours of the window" unit="h" done={Math.min(hours, Math.round((hours * 3_600_000 - left) / 3_600_000))} total={hours} /></div>
          <span className="text-xs">{left > 0 ? `${duration(left)} left` : 'over'}</span></div>
      )}
    </div>
  )
}

function Pictures({ alias, report }: { alias: Alias; report: History }) {
  const { points, evidence } = report
  const last = points[points.length - 1]
  const limit = alias.gate_rollback_threshold ?? 0
  if (points.length === 0) {
    return (
      <Section title="Evidence">
        <p className="text-sm text-soft">No drawn request was looked at yet. Requests to <code className="font-mono">{alias.name}</code> are drawn, answered
          and graded; the first points come within seconds. The pictures may be looked at as often as you like.</p>
      </Section>
    )
  }
  return (
    <div className="grid gap-x-4 lg:grid-cols-2">
      <Section title="Evidence for and against">
        <LineChart title="Logarithm of the e-value, per look" xLabel="Drawn requests" series={[
          { name: 'to promote', points: points.map((p) => ({ x: p.drawn, y: p.promote })) },
          { name: 'to roll back', points: points.map((p) => ({ x: p.drawn, y: p.roll_back })) },
        ]} thresholds={[{ y: evidence.needed, label: `decides at ${evidence.needed.toFixed(2)}` }]} yFormat={(y) => y.toFixed(1)}
          summary={`After ${count(last!.drawn)} drawn requests the evidence to promote is ${evidence.promote.toFixed(2)} and to roll back ${evidence.roll_back.toFixed(2)}; ${evidence.needed.toFixed(2)} decides.`} />
        <p className="mt-1 text-xs text-faint">A line that reaches the mark decides, once both models have their samples.</p>
      </Section>
      <Section title="Difference of the pass rates">
        <LineChart title="Canary minus target, with bounds that hold at all times" xLabel="Drawn requests" series={[
          { name: 'difference', points: points.map((p) => ({ x: p.drawn, y: p.difference, low: p.difference_low, high: p.difference_high })) },
        ]} thresholds={[{ y: -limit, label: `not accepted: −${percent(limit, 0)}` }, { y: 0, label: '' }]} yFormat={(y) => percent(y, 0)}
          summary={`The difference is ${report.difference === null ? 'not known' : percent(report.difference)}, from ${percent(last!.difference_low)} to ${percent(last!.difference_high)}.`} />
        <p className="mt-1 text-xs text-faint">As the judge sees it; the band may be looked at after each request.</p>
      </Section>
    </div>
  )
}

function Arms({ report, alias }: { report: History; alias: Alias }) {
  const arms = report.arms
  return (
    <Section title="Arms" aside={report.epoch ?? undefined}>
      {arms.some((arm) => arm.rate !== null) && (
        <IntervalPlot title="Pass rates, with bounds that hold at all times" intervals={arms.filter((arm) => arm.rate !== null).map((arm, i) => ({
          label: i === 0 ? 'target' : 'canary', value: arm.rate!, low: arm.ci[0]!, high: arm.ci[1]!, note: arm.model,
        }))} />
      )}
      <div className="mt-3 grid gap-4 md:grid-cols-2">
        {arms.map((arm, i) => <ArmFacts key={arm.model + i} arm={arm} name={i === 0 ? 'Target' : 'Canary'} />)}
      </div>
      <div className="mt-3">
        <Stats>
          <WhenSeen height={76}><JudgeStat alias={alias} certificate={report.certificate_id ?? 'no certificate'} /></WhenSeen>
          <Stat label="Spent on it" value={<Money usd={report.spent_usd} />} hint={<>of <Money usd={alias.gate_max_cost_usd} /> in this epoch</>} />
          <Stat label="Began" value={<Time value={report.started_at} relative />} />
          <Stat label="Last look" value={<Time value={report.evaluated_at} relative />} />
        </Stats>
      </div>
    </Section>
  )
}

function JudgeStat({ alias, certificate }: { alias: Alias; certificate: string }) {
  const judge = useCriteria().data?.data.find((one) => one.id === alias.gate_criterion_id)
  return <Stat label="The judge" value={judge?.name ?? alias.gate_criterion_id} to={`judges/${alias.gate_criterion_id}`}
    hint={judge ? `${judge.trust}, version ${judge.version}` : certificate} />
}

function ArmFacts({ arm, name }: { arm: Arm; name: string }) {
  return (
    <div className="min-w-0">
      <h3 className="mb-1 truncate text-sm font-medium">{name}: <A to="logs" query={{ model: arm.model }}>{arm.model}</A></h3>
      <Facts rows={[
        ['Count', <>{count(arm.n)} drawn, {count(arm.passes)} pass{arm.rate === null ? '' : ` (${percent(arm.rate)})`}</>],
        ['Errors', `${count(arm.errors)} (fails without an answer)`], ['Missing', `${count(arm.missing)} (the judge has no verdict; counts against every decision)`],
        ['Left', `${count(arm.left)} (the caller did not wait)`], ['Repeated', `${count(arm.repeated)} (asked before; count once)`],
        ['Latency', arm.latency_ms.p50 === null ? '–' : `${duration(arm.latency_ms.p50)} median, ${duration(arm.latency_ms.p95 ?? 0)} p95`],
        ['Cost', <Money usd={arm.cost_usd} />],
      ]} />
    </div>
  )
}
