// Blocks of a calibration as charts take them.
import type { Interval } from '../../chart/IntervalPlot'
import type { Series } from '../../chart/LineChart'
import type { Block, Calibration } from './api'

type Numbers = Pick<Block, 'se' | 'se_ci' | 'sp' | 'sp_ci' | 'kappa' | 'kappa_ci'>

const names = [['se', 'Sensitivity'], ['sp', 'Specificity'], ['kappa', 'Kappa']] as const

/** Sensitivity, specificity and kappa with their intervals. What was not measured is left out. */
export function intervalsOf(block: Numbers, options: { prefix?: string; unsure?: boolean; kappa?: boolean } = {}): Interval[] {
  return names.flatMap(([field, name]) => {
    const value = block[field]
    const ci = field === 'kappa' ? block.kappa_ci : block[`${field}_ci`]
    if (value === null || value === undefined || (field === 'kappa' && options.kappa === false)) return []
    const [low, high] = ci ?? [value, value]
    return [{
      label: options.prefix ? `${options.prefix} ${name.toLowerCase()}` : name, value, low: low!, high: high!, unsure: options.unsure,
      ...(!ci && { note: 'no interval' }),
    }]
  })
}

const minute = 60_000

/** The finished calibrations, the oldest first: over time or, where they are minutes apart, by their number. */
export function historyOf(calibrations: Calibration[]): { series: Series[]; xTime: boolean; xLabel: string } {
  const done = calibrations.filter((run) => run.status === 'DONE' && run.block && (run.aligned_at ?? run.finished_at))
    .sort((a, b) => when(a) - when(b))
  const xTime = done.length > 1 && when(done[done.length - 1]!) - when(done[0]!) >= 10 * minute
  const series = (['se', 'sp'] as const).map((field) => ({
    name: field === 'se' ? 'Sensitivity' : 'Specificity',
    points: done.map((run, i) => {
      const ci = run.block![`${field}_ci`]
      return { x: xTime ? when(run) : i + 1, y: run.block![field], ...(ci && { low: ci[0], high: ci[1] }) }
    }),
  }))
  return { series, xTime, xLabel: xTime ? 'Time' : 'Calibration' }
}

const when = (run: Calibration): number => Date.parse(run.aligned_at ?? run.finished_at ?? run.created_at)
