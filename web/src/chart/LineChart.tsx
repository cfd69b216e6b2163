import { scaleLinear, scaleTime } from 'd3-scale'
import { area, line } from 'd3-shape'
import { useState } from 'react'
import { short, time } from '../format'
import { ChartFrame, colour, Legend, rule, tick, timeTick } from './frame'

export interface Point { x: number; y: number | null; low?: number; high?: number }
export interface Series { name: string; points: Point[]; dashed?: boolean }
export interface Threshold { y: number; label: string }

interface Props {
  title: string
  summary: string
  series: Series[]
  thresholds?: Threshold[]
  /** x is a time in milliseconds, or a number such as looks or samples. */
  xTime?: boolean
  xLabel?: string
  yFormat?: (y: number) => string
  yDomain?: [number, number]
  height?: number
}

/** Lines with bands of their bounds, against thresholds. */
export function LineChart(props: Props) {
  const { title, summary, series, xTime, xLabel = xTime ? 'Time' : 'x', yFormat = short, height = 220 } = props
  const xText = (x: number) => (xTime ? time(new Date(x)) : short(x))
  return (
    <ChartFrame title={title} summary={summary} height={height} legend={series.length > 1 && <Legend names={series.map((s) => s.name)} />}
      table={{
        headers: ['Series', xLabel, 'Value', 'Low', 'High'],
        rows: series.flatMap((s) => s.points.map((p) => [
          s.name, xText(p.x), p.y === null ? '–' : yFormat(p.y), p.low === undefined ? '–' : yFormat(p.low), p.high === undefined ? '–' : yFormat(p.high),
        ])),
      }}>
      {(width) => <Lines {...props} width={width} height={height} yFormat={yFormat} xText={xText} />}
    </ChartFrame>
  )
}

const sides = { left: 48, right: 12, top: 10 }

/** Text that is read over a line that crosses it. */
const over = { paintOrder: 'stroke', stroke: 'var(--color-surface)', strokeWidth: 4, strokeLinejoin: 'round' } as const

/** As many of the ticks as have room for their labels. */
export function spaced(ticks: number[], at: (t: number) => number, room: number): number[] {
  const kept: number[] = []
  for (const t of ticks) if (kept.length === 0 || at(t) - at(kept[kept.length - 1]!) >= room) kept.push(t)
  return kept
}

function Lines({ series, thresholds = [], xTime, xLabel, yFormat, yDomain, width, height, xText }:
  Props & { width: number; height: number; yFormat: (y: number) => string; xText: (x: number) => string }) {
  const [hover, setHover] = useState<number | null>(null)
  const margin = { ...sides, bottom: xLabel && !xTime ? 36 : 22 }
  const points = series.flatMap((s) => s.points)
  if (points.length === 0) return <p className="pt-10 text-center text-xs text-faint">No points yet</p>
  const xs = points.map((p) => p.x)
  const ys = [...points.flatMap((p) => [p.y, p.low, p.high]), ...thresholds.map((t) => t.y)]
    .filter((y): y is number => y !== null && y !== undefined && Number.isFinite(y))
  const isOne = Math.min(...xs) === Math.max(...xs) // of each series: its interval is drawn as whiskers
  const range = isOne ? [xs[0]! - 1, xs[0]! + 1] : [Math.min(...xs), Math.max(...xs)]
  const x = scaleLinear().domain(range).range([margin.left, width - margin.right])
  const y = scaleLinear().domain(yDomain ?? [Math.min(...ys), Math.max(...ys)]).range([height - margin.bottom, margin.top])
  if (!yDomain) y.nice(4)
  const px = (p: Point, i = 0) => x(p.x) + (isOne ? (i - (series.length - 1) / 2) * 28 : 0)
  const drawLine = line<Point>().defined((p) => p.y !== null).x((p) => px(p)).y((p) => y(p.y!))
  const drawArea = area<Point>().defined((p) => p.low !== undefined && p.high !== undefined).x((p) => px(p)).y0((p) => y(p.low!)).y1((p) => y(p.high!))
  const ticks = spaced((xTime ? scaleTime().domain(range) : x).ticks(Math.max(2, Math.floor(width / 110))).map(Number)
    .filter((t) => (xTime || Number.isInteger(t) || !xs.every(Number.isInteger)) && (!isOne || t === xs[0])), x, xTime ? 64 : 32) // runs and looks are counted
  const step = ticks.length > 1 ? ticks[1]! - ticks[0]! : 0
  const nearest = (s: Series) => hover === null ? undefined
    : s.points.reduce<Point | undefined>((best, p) => (!best || Math.abs(p.x - hover) < Math.abs(best.x - hover) ? p : best), undefined)
  return (
    <svg width={width} height={height} aria-hidden className="block" onPointerLeave={() => setHover(null)}
      onPointerMove={(event) => setHover(x.invert(event.clientX - event.currentTarget.getBoundingClientRect().left))}>
      {y.ticks(4).map((t) => (
        <g key={t}>
          <line x1={margin.left} x2={width - margin.right} y1={y(t)} y2={y(t)} stroke={rule} />
          <text x={margin.left - 6} y={y(t) + 4} textAnchor="end" {...tick}>{yFormat(t)}</text>
        </g>
      ))}
      {ticks.map((t) => (
        <text key={t} x={x(t)} y={height - margin.bottom + 16} textAnchor={width - x(t) < 30 ? 'end' : 'middle'} {...tick}>{xTime ? timeTick(new Date(t), step) : short(t)}</text>
      ))}
      {xLabel && !xTime && <text x={(margin.left + width - margin.right) / 2} y={height - 4} textAnchor="middle" {...tick}>{xLabel}</text>}
      {series.map((s, i) => (
        <g key={s.name}>
          <path d={drawArea(s.points) ?? ''} fill={colour(i)} opacity={0.14} />
          <path d={drawLine(s.points) ?? ''} fill="none" stroke={colour(i)} strokeWidth={1.75} strokeDasharray={s.dashed ? '4 3' : undefined} />
          {isOne && s.points.map((p, n) => p.low !== undefined && p.high !== undefined && (
            <path key={n} d={`M${px(p, i)},${y(p.low)}V${y(p.high)}m-5,0h10M${px(p, i) - 5},${y(p.low)}h10`} stroke={colour(i)} strokeWidth={1.5} />
          ))}
          {s.points.length < 40 && s.points.map((p, n) => p.y !== null && <circle key={n} cx={px(p, i)} cy={y(p.y)} r={isOne ? 4 : 2} fill={colour(i)} />)}
        </g>
      ))}
      {thresholds.map((t) => (
        <g key={t.label}>
          <line x1={margin.left} x2={width - margin.right} y1={y(t.y)} y2={y(t.y)} stroke="var(--color-warn)" strokeDasharray="5 4" />
          <text x={width - margin.right} y={y(t.y) - 4} textAnchor="end" {...tick} {...over} fill="var(--color-warn)">{t.label}</text>
        </g>
      ))}
      {hover !== null && series.map((s, i) => {
        const p = nearest(s)
        if (!p || p.y === null) return null
        return (
          <g key={s.name}>
            <circle cx={px(p, i)} cy={y(p.y)} r={isOne ? 5 : 3.5} fill={colour(i)} />
            <text x={margin.left + 4} y={margin.top + 10 + i * 14} {...tick} {...over} fill="var(--color-text)">
              {series.length > 1 ? `${s.name} · ` : ''}{xText(p.x)} · {yFormat(p.y)}
              {p.low !== undefined && p.high !== undefined ? ` (${yFormat(p.low)} to ${yFormat(p.high)})` : ''}
            </text>
          </g>
        )
      })}
    </svg>
  )
}
