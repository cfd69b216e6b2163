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

/** The finished calibrations over time, the oldest first. */
export function historyOf(calibrations: Calibration[]): Series[] {
  const done = calibrations.filter((run) => run.status === 'DONE' && run.block && (run.aligned_at ?? run.finished_at))
    .sort((a, b) => when(a) - when(b))
  return (['se', 'sp'] as const).map((field) => ({
    name: field === 'se' ? 'Sensitivity' : 'Specificity',
    points: done.map((run) => {
      const ci = run.block![`${field}_ci`]
      return { x: when(run), y: run.block![field], ...(ci && { low: ci[0], high: ci[1] }) }
    }),
  }))
}

const when = (run: Calibration): number => Date.parse(run.aligned_at ?? run.finished_at ?? run.created_at)
