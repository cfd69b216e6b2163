import { IntervalPlot, type Interval } from '../../chart/IntervalPlot'
import { count, percent, plural } from '../../format'
import { A } from '../../ui/Link'
import type { Rates } from './api'

const why: Record<string, string> = {
  no_verdicts: 'there are no verdicts yet', no_certificate: 'the judge has no certificate', certificate_void: 'its certificate is void',
  few_labels: 'it was measured on too few labels', judge_not_proven: 'it is not proven better than chance', contradicted: 'the judge’s known errors contradict what it saw',
}

/** How much passes: as the judge says, and corrected for its known errors. */
export function RatesView({ rates, judge }: { rates: Rates; judge: string }) {
  if (rates.n === 0 || rates.rate === null) return <p className="text-sm text-soft">No verdict yet{rates.failed > 0 && `, and ${plural(rates.failed, 'failure')}`}.</p>
  const intervals: Interval[] = [interval('As judged', rates.rate, rates.rate_ci)]
  if (rates.corrected_rate !== null) intervals.push(interval('Corrected', rates.corrected_rate, rates.corrected_rate_ci))
  return (
    <div className="space-y-2">
      <IntervalPlot title="What passes, 95 % intervals" domain={[0, 1]} format={(x) => percent(x, 1)} intervals={intervals} />
      <p className="text-xs text-soft">
        {count(rates.passes)} of {count(rates.n)} pass{rates.failed > 0 && `, ${plural(rates.failed, 'answer')} had no verdict`}.
        {rates.not_corrected ? ` Not corrected for the judge’s errors: ${why[rates.not_corrected] ?? rates.not_corrected}.` : <> Corrected for the judge’s known errors by its <A to={`judges/${judge}/certificate`} query={rates.certificate_id ? { id: rates.certificate_id } : {}}>certificate</A>.</>}
      </p>
    </div>
  )
}

const interval = (label: string, value: number, ci: number[] | null): Interval => ({ label, value, low: ci?.[0] ?? value, high: ci?.[1] ?? value })
