import { scaleBand, scaleLinear } from 'd3-scale'
import { useState } from 'react'
import { short } from '../format'
import { ChartFrame, colour, Legend, rule, tick } from './frame'

export interface DayValue { day: string; group: string; value: number }

interface Props {
  title: string
  values: DayValue[]
  /** Every day of the range, so that days without traffic are seen: YYYY-MM-DD. */
  days: string[]
  format?: (value: number) => string
  height?: number
  /** Groups beyond this many are drawn as one, "other". */
  most?: number
  onOpen?: (day: string, group: string) => void
}

const margin = { right: 4, top: 8, bottom: 20 }

/** The largest groups in order, and what each day has of them. */
export function stack(values: DayValue[], days: string[], most: number) {
  const totals = new Map<string, number>()
  for (const v of values) totals.set(v.group, (totals.get(v.group) ?? 0) + v.value)
  const order = [...totals].sort((a, b) => b[1] - a[1]).map(([group]) => group)
  const groups = order.length > most ? [...order.slice(0, most - 1), 'other'] : order
  const place = new Map(order.map((group, i) => [group, order.length > most ? Math.min(i, most - 1) : i]))
  const byDay = new Map(days.map((day) => [day, groups.map(() => 0)]))
  for (const v of values) {
    const row = byDay.get(v.day)
    if (row) row[place.get(v.group)!]! += v.value
  }
  return { groups, byDay }
}

/** A bar for each day, stacked by group. */
export function StackedBars({ title, values, days, format = short, height = 200, most = 8, onOpen }: Props) {
  const { groups, byDay } = stack(values, days, most)
  const total = values.reduce((sum, v) => sum + v.value, 0)
  return (
    <ChartFrame title={title} height={height} legend={<Legend names={groups.map((g) => g || '(none)')} />}
      summary={`${format(total)} in ${days.length} days, in ${groups.length} groups: ${groups.slice(0, 3).join(', ')}.`}
      table={{ headers: ['Day', ...groups.map((g) => g || '(none)')], rows: days.map((d) => [d, ...byDay.get(d)!.map(format)]) }}>
      {(width) => total === 0 ? <p className="pt-10 text-center text-xs text-faint">Nothing in these days</p> : <Bars {...{ width, height, days, groups, byDay, format, onOpen }} />}
    </ChartFrame>
  )
}

interface BarsProps {
  width: number; height: number; days: string[]; groups: string[]; byDay: Map<string, number[]>
  format: (value: number) => string; onOpen?: (day: string, group: string) => void
}

function Bars({ width, height, days, groups, byDay, format, onOpen }: BarsProps) {
  const [hover, setHover] = useState('')
  const sums = days.map((d) => byDay.get(d)!.reduce((a, b) => a + b, 0))
  const y = scaleLinear().domain([0, Math.max(...sums, 1e-12)]).nice(3).range([height - margin.bottom, margin.top])
  const left = 12 + 7 * Math.max(...y.ticks(3).map((t) => format(t).length))
  const x = scaleBand().domain(days).range([left, width - margin.right]).paddingInner(0.25).paddingOuter(0.1)
  const every = Math.ceil(days.length / Math.max(1, Math.floor((width - left) / 64)))
  return (
    <svg width={width} height={height} aria-hidden className="block" onPointerLeave={() => setHover('')}>
      {y.ticks(3).map((t) => (
        <g key={t}>
          <line x1={left} x2={width} y1={y(t)} y2={y(t)} stroke={rule} />
          <text x={left - 6} y={y(t) + 4} textAnchor="end" {...tick}>{format(t)}</text>
        </g>
      ))}
      {days.map((day, n) => {
        let base = 0
        return (
          <g key={day} onPointerEnter={() => setHover(day)} opacity={hover && hover !== day ? 0.6 : 1}>
            <rect x={x(day)} width={x.step()} y={margin.top} height={height - margin.top - margin.bottom} fill="transparent" />
            {byDay.get(day)!.map((value, i) => {
              if (value <= 0) return null
              const top = y((base += value))
              return (
                <rect key={groups[i]} x={x(day)} width={x.bandwidth()} y={top} height={Math.max(0.5, y(base - value) - top)} fill={colour(i)}
                  className={onOpen && 'cursor-pointer'} onClick={onOpen && (() => onOpen(day, groups[i]!))}>
                  <title>{`${day} · ${groups[i]} · ${format(value)}`}</title>
                </rect>
              )
            })}
            {n % every === 0 && (
              <text x={x(day)! + x.bandwidth() / 2} y={height - 5} textAnchor="middle" {...tick}>{label(day)}</text>
            )}
          </g>
        )
      })}
      {hover && (
        <text x={width - 4} y={margin.top + 8} textAnchor="end" {...tick} fill="var(--color-text)">
          {label(hover)} · {format(sums[days.indexOf(hover)] ?? 0)}
        </text>
      )}
    </svg>
  )
}

const label = (day: string) => {
  const [, month, date] = day.split('-')
  return `${Number(date)} ${['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'][Number(month) - 1]}`
}

/** The last n days up to today, in UTC. */
export function lastDays(n: number, now = new Date()): string[] {
  return Array.from({ length: n }, (_, i) => new Date(now.getTime() - (n - 1 - i) * 86_400_000).toISOString().slice(0, 10))
}
