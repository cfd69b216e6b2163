import type { components } from '../../api/v1'
import { IntervalPlot } from '../../chart/IntervalPlot'
import { PlainTable } from '../../chart/frame'
import { count, duration, money, percent } from '../../format'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import type { Eval } from './gate'

type Result = components['schemas']['EvalResult']

const points = (x: number) => `${x > 0 ? '+' : x < 0 ? '−' : ''}${Math.abs(x * 100).toFixed(1)}`

const notCorrected: Record<string, string> = {
  no_verdicts: 'no verdicts', no_certificate: 'the judge has no certificate', few_labels: 'too few labels', judge_not_proven: 'the judge is not proven to tell good from bad',
  contradicted: 'the verdicts contradict the certificate',
}

/** Every candidate against the baseline: rates with intervals, and what the pairs say. */
export function Results({ run }: { run: Eval }) {
  const judged = run.candidates.filter((one) => (run.kind === 'comparison' ? one.win_rate : one.difference) !== null)
  return (
    <div className="grid gap-x-4 lg:grid-cols-2">
      <Section title={run.kind === 'comparison' ? 'Win rates' : 'Paired differences'}>
        {judged.length === 0 ? <p className="text-sm text-soft">Nothing is judged yet.</p> : run.kind === 'comparison' ? (
          <IntervalPlot title="Against the baseline; a tie counts half" domain={[0, 1]} format={(x) => percent(x, 0)} threshold={{ at: 0.5, label: 'equal' }}
            intervals={judged.map((one) => ({ label: one.model, value: one.win_rate!, low: one.win_rate_ci![0]!, high: one.win_rate_ci![1]! }))} />
        ) : (
          <IntervalPlot title="Pass rate minus the baseline’s, in points, on the same cases" domain={around(judged)} format={points} threshold={{ at: 0, label: 'equal' }}
            intervals={judged.map((one) => ({ label: one.model, value: one.difference!, low: one.difference_ci![0]!, high: one.difference_ci![1]! }))} />
        )}
        {judged.map((one) => <Pairs key={one.model} run={run} one={one} />)}
      </Section>
      <Section title={run.kind === 'comparison' ? 'Candidates' : 'Pass rates'}>
        {run.kind === 'criterion' && (
          <div className="mb-3">
            <IntervalPlot title="Whiskers at 95 %; hatched where it is the judge’s own rate, not corrected for its errors" format={(x) => percent(x, 0)}
              intervals={[run.baseline, ...run.candidates].filter((one) => one.pass_rate !== null).map((one) => {
                const isTrue = one.corrected_pass_rate !== null && one.corrected_pass_rate_ci
                const [low, high] = isTrue ? one.corrected_pass_rate_ci! : one.pass_rate_ci!
                return { label: one.model, value: isTrue ? one.corrected_pass_rate! : one.pass_rate!, low: low!, high: high!, unsure: !isTrue,
                  note: isTrue ? 'corrected' : notCorrected[one.not_corrected ?? ''] ?? 'not corrected' }
              })} />
          </div>
        )}
        <PlainTable caption="Models" headers={['Model', 'Done', 'Failed', 'Cost', 'Median latency', 'p']} rows={[run.baseline, ...run.candidates].map((one) => [
          one.model === run.baseline_model ? `${one.model} (baseline)` : one.model, count(one.cases), count(one.failed), money(one.cost_usd),
          one.latency_ms === null ? '–' : duration(one.latency_ms), one.p_value === null || one.p_value === undefined ? '–' : pText(one.p_value),
        ])} />
        {run.candidates.filter((one) => one.failure).map((one) => <p key={one.model} className="mt-2 text-sm text-fail">{one.model}: {one.failure}</p>)}
        <p className="mt-2 text-xs text-faint">p: how often two equal models would differ by as much. The gate below decides by bounds, not by p.</p>
      </Section>
    </div>
  )
}

const pText = (p: number) => p < 0.0001 ? '< 0.0001' : p.toFixed(4)

const around = (all: Result[]): [number, number] => {
  const most = Math.max(0.05, ...all.flatMap((one) => one.difference_ci ?? []).map(Math.abs)) * 1.15
  return [-most, most]
}

/** Wins, ties and losses of a candidate, each a link to its cases. */
function Pairs({ run, one }: { run: Eval; one: Result }) {
  const parts = [['win', one.wins, 'bg-pass'], ['tie', one.ties, 'bg-edge'], ['loss', one.losses, 'bg-fail']] as const
  const total = parts.reduce((sum, [, n]) => sum + (n ?? 0), 0)
  if (total === 0) return null
  return (
    <div className="mt-2 text-sm">
      <div className="flex h-2.5 gap-px overflow-hidden rounded-full" aria-hidden>
        {parts.map(([name, n, tone]) => <div key={name} className={tone} style={{ width: `${((n ?? 0) / total) * 100}%` }} />)}
      </div>
      <p className="mt-1 flex flex-wrap gap-x-3 text-xs">
        <span className="min-w-0 truncate text-soft">{one.model}</span>
        {parts.map(([name, n]) => (
          <A key={name} to={`evals/${run.id}`} query={{ candidate: one.model, outcome: name }}>{count(n ?? 0)} {name === 'loss' ? 'losses' : `${name}s`}</A>
        ))}
        {one.flipped !== null && one.flipped !== undefined && <A to={`evals/${run.id}`} query={{ candidate: one.model, flipped: 'true' }}>{count(one.flipped)} flipped</A>}
      </p>
    </div>
  )
}
