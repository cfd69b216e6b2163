// The metrics of a run as charts.
import type { Series as ChartSeries, Point } from '../../chart/LineChart'
import { short } from '../../format'
import type { Event, Series } from './api'

export type Curves = Map<string, Series['metrics'][number]['points']>

/** A series with the events that followed it. A step that is told again replaces what was told from there on. */
export function extend(series: Series, events: Event[]): { curves: Curves; messages: Event[] } {
  const curves: Curves = new Map(series.metrics.map((metric) => [metric.name, [...metric.points]]))
  const messages = [...series.messages]
  for (const event of events) {
    if (event.seq <= series.seq) continue
    if (event.type === 'message') messages.push(event)
    for (const [name, value] of Object.entries((event.data ?? {}) as Record<string, unknown>)) {
      if (event.type !== 'metrics' || typeof value !== 'number') continue
      const points = curves.get(name) ?? []
      while (points.length && points.at(-1)!.step >= event.step) points.pop()
      points.push({ step: event.step, mean: value, low: value, high: value })
      curves.set(name, points)
    }
  }
  return { curves, messages }
}

/** A number of any size in few characters. */
export function figure(y: number): string {
  const size = Math.abs(y)
  if (y === 0) return '0'
  if (size >= 1000) return short(y)
  return size < 0.001 ? y.toExponential(1).replace('e-', 'e−') : String(Number(y.toPrecision(3)))
}

export interface Chart { title: string; series: ChartSeries[] }

// Which metrics stand in one chart, and what each is called. The first that is there decides.
const charts: { title: string; lines: [string[], string][] }[] = [
  { title: 'Mean reward, with its spread', lines: [[['reward_mean', 'reward'], 'reward']] },
  { title: 'Divergence from the base model (KL)', lines: [[['kl'], 'KL']] },
  { title: 'Loss', lines: [[['loss'], 'training'], [['eval_loss'], 'validation']] },
  { title: 'Margin between chosen and rejected', lines: [[['rewards/margins'], 'margin']] },
  { title: 'Accuracy', lines: [[['mean_token_accuracy'], 'tokens'], [['rewards/accuracies'], 'preferences']] },
  { title: 'Learning rate', lines: [[['learning_rate'], 'learning rate']] },
  { title: 'Gradient norm', lines: [[['grad_norm'], 'norm']] },
  { title: 'Tokens', lines: [[['num_tokens', 'tokens'], 'tokens']] },
]
const spread = new Map([['reward_mean', 'reward_std'], ['reward', 'reward_std']])

/** The charts that a run has something for, the known ones first; what nobody knows stands at the end, under its own name. */
export function chartsOf(curves: Curves): { first: Chart[]; rest: Chart[] } {
  const used = new Set<string>()
  const first: Chart[] = []
  for (const { title, lines } of charts) {
    const series: ChartSeries[] = []
    for (const [names, name] of lines) {
      const found = names.find((one) => curves.get(one)?.length)
      if (!found) continue
      const band = spread.get(found)
      names.forEach((one) => used.add(one))
      if (band) used.add(band)
      series.push({ name, points: points(curves.get(found)!, band ? curves.get(band) : undefined) })
    }
    if (series.length) first.push({ title, series })
  }
  const rest = [...curves].filter(([name, of]) => !used.has(name) && of.length > 0)
    .map(([name, of]) => ({ title: name, series: [{ name, points: points(of) }] }))
  return { first, rest }
}

function points(of: { step: number; mean: number; low: number; high: number }[], band?: { step: number; mean: number }[]): Point[] {
  const by = band && new Map(band.map((point) => [point.step, point.mean]))
  return of.map((point) => {
    const around = by?.get(point.step)
    if (around !== undefined) return { x: point.step, y: point.mean, low: point.mean - around, high: point.mean + around }
    return point.low === point.high ? { x: point.step, y: point.mean } : { x: point.step, y: point.mean, low: point.low, high: point.high }
  })
}

/** What a chart shows, in a sentence. */
export function said(chart: Chart): string {
  return chart.series.map(({ name, points: all }) => {
    const [a, b] = [all[0], all.at(-1)]
    return a && b ? `${name}: ${figure(a.y ?? 0)} at step ${a.x}, ${figure(b.y ?? 0)} at step ${b.x}` : name
  }).join('; ') + '.'
}
