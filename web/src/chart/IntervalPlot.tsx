import { scaleLinear } from 'd3-scale'
import { rate } from '../format'
import { ChartFrame, rule, tick } from './frame'

export interface Interval {
  label: string
  value: number
  low: number
  high: number
  /** Drawn hatched and named: an estimate that must not be relied on yet. */
  unsure?: boolean
  note?: string
}

interface Props {
  title: string
  intervals: Interval[]
  threshold?: { at: number; label: string }
  domain?: [number, number]
  format?: (x: number) => string
}

const rowHeight = 30

/** Estimates with whiskers against a threshold. What is below the threshold by its lower bound is drawn in another tone. */
export function IntervalPlot({ title, intervals, threshold, domain, format = rate }: Props) {
  const height = intervals.length * rowHeight + 30
  const describe = (i: Interval) => `${i.label} ${format(i.value)}, ${format(i.low)} to ${format(i.high)}${i.unsure ? ', not final' : ''}`
  return (
    <ChartFrame title={title} height={height}
      summary={intervals.map(describe).join('; ') + (threshold ? `. Threshold ${format(threshold.at)}.` : '.')}
      table={{
        headers: ['', 'Value', 'Low', 'High', 'Note'],
        rows: intervals.map((i) => [i.label, format(i.value), format(i.low), format(i.high), i.note ?? (i.unsure ? 'not final' : '')]),
      }}>
      {(width) => {
        const left = Math.min(150, width * 0.32)
        const all = intervals.flatMap((i) => [i.low, i.high]).concat(threshold ? [threshold.at] : [])
        const x = scaleLinear().domain(domain ?? [Math.max(0, Math.min(...all) - 0.05), Math.min(1, Math.max(...all) + 0.05)])
          .range([left, width - 64])
        const bottom = height - 22
        return (
          <svg width={width} height={height} aria-hidden className="block">
            <defs>
              <pattern id="unsure" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
                <rect width="3" height="6" fill="var(--color-edge)" />
              </pattern>
            </defs>
            {x.ticks(Math.max(2, Math.floor(width / 140))).map((t) => (
              <g key={t}>
                <line x1={x(t)} x2={x(t)} y1={0} y2={bottom} stroke={rule} />
                <text x={x(t)} y={height - 6} textAnchor="middle" {...tick}>{format(t)}</text>
              </g>
            ))}
            {threshold && (
              <g>
                <line x1={x(threshold.at)} x2={x(threshold.at)} y1={0} y2={bottom} stroke="var(--color-warn)" strokeDasharray="5 4" />
                <text x={x(threshold.at) + 4} y={bottom - 3} {...tick} fill="var(--color-warn)">{threshold.label}</text>
              </g>
            )}
            {intervals.map((i, n) => {
              const y = n * rowHeight + rowHeight / 2
              const tone = i.unsure ? 'url(#unsure)' : threshold && i.low < threshold.at ? 'var(--color-warn)' : 'var(--color-accent)'
              return (
                <g key={i.label}>
                  <text x={0} y={y + 4} {...tick} fill="var(--color-text)" fontSize={12}>{i.label}</text>
                  <rect x={x(i.low)} width={Math.max(1, x(i.high) - x(i.low))} y={y - 4} height={8} rx={2} fill={tone} opacity={0.35} />
                  <path d={`M${x(i.low)},${y - 6}v12M${x(i.high)},${y - 6}v12M${x(i.low)},${y}H${x(i.high)}`} stroke={i.unsure ? 'var(--color-edge)' : tone} />
                  <circle cx={x(i.value)} cy={y} r={4} fill={i.unsure ? 'var(--color-edge)' : tone} />
                  <text x={width} y={y + 4} textAnchor="end" {...tick} fill="var(--color-text)">{format(i.value)}</text>
                </g>
              )
            })}
          </svg>
        )
      }}
    </ChartFrame>
  )
}
