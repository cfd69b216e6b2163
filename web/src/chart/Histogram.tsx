import { scaleLinear, scaleTime } from 'd3-scale'
import { useRef, useState, type KeyboardEvent, type PointerEvent } from 'react'
import { count, short, time } from '../format'
import { ChartFrame, rule, tick, timeTick } from './frame'

export interface Bucket { from: string; to: string; count: number }

interface Props {
  title: string
  buckets: Bucket[]
  height?: number
  /** The chosen range, and how it is changed: by dragging, or by the keyboard. */
  onBrush?: (from: string, to: string) => void
}

/**
 * Counts over time. Dragging chooses a range. By keyboard: the arrows move over the buckets, with Shift they widen the
 * range, Enter takes it.
 */
export function Histogram({ title, buckets, height = 96, onBrush }: Props) {
  const total = buckets.reduce((sum, bucket) => sum + bucket.count, 0)
  const first = buckets[0]
  const last = buckets[buckets.length - 1]
  return (
    <ChartFrame title={title} height={height}
      summary={first && last ? `${count(total)} from ${time(new Date(first.from))} to ${time(new Date(last.to))}.` : 'Nothing to show.'}
      table={{ headers: ['From', 'To', 'Count'], rows: buckets.map((b) => [time(new Date(b.from)), time(new Date(b.to)), b.count]) }}>
      {(width) => <Bars width={width} height={height} buckets={buckets} onBrush={onBrush} title={title} />}
    </ChartFrame>
  )
}

function Bars({ width, height, buckets, onBrush, title }: Props & { width: number; height: number }) {
  const svg = useRef<SVGSVGElement>(null)
  const [range, setRange] = useState<[number, number] | null>(null) // of buckets, first and last
  const [hover, setHover] = useState(-1)
  const drag = useRef(-1)
  if (buckets.length === 0) return <p className="pt-6 text-center text-xs text-faint">Nothing in this range</p>
  const bottom = height - 16
  const from = new Date(buckets[0]!.from)
  const to = new Date(buckets[buckets.length - 1]!.to)
  const x = scaleTime().domain([from, to]).range([0, width])
  const most = Math.max(1, ...buckets.map((bucket) => bucket.count))
  const y = scaleLinear().domain([0, most]).range([bottom, 4])
  const ticks = x.ticks(Math.max(2, Math.floor(width / 110)))
  const step = ticks.length > 1 ? ticks[1]!.getTime() - ticks[0]!.getTime() : 0

  const at = (event: PointerEvent) => {
    const box = svg.current!.getBoundingClientRect()
    return Math.max(0, Math.min(buckets.length - 1, Math.floor(((event.clientX - box.left) / width) * buckets.length)))
  }
  const take = (a: number, b: number) => {
    setRange(null)
    onBrush?.(buckets[Math.min(a, b)]!.from, buckets[Math.max(a, b)]!.to)
  }
  const press = (event: KeyboardEvent) => {
    const now = range ?? [hover < 0 ? 0 : hover, hover < 0 ? 0 : hover]
    const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0
    if (by !== 0) {
      const end = Math.max(0, Math.min(buckets.length - 1, now[1] + by))
      setRange(event.shiftKey ? [now[0], end] : [end, end])
      setHover(end)
    } else if (event.key === 'Enter' && range) take(range[0], range[1])
    else if (event.key === 'Escape' && range) setRange(null)
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const shown = buckets[hover]
  const lo = range && Math.min(...range)
  const hi = range && Math.max(...range)
  return (
    <svg ref={svg} width={width} height={height} tabIndex={onBrush ? 0 : undefined} role={onBrush ? 'slider' : 'img'}
      aria-label={onBrush ? `${title}: choose a range by arrows with Shift, take it by Enter` : title}
      aria-valuenow={onBrush ? Math.max(0, hover) : undefined} aria-valuemin={onBrush ? 0 : undefined}
      aria-valuemax={onBrush ? buckets.length - 1 : undefined}
      aria-valuetext={shown ? `${time(new Date(shown.from))}: ${count(shown.count)}` : undefined}
      className={onBrush ? 'block cursor-crosshair touch-none select-none' : 'block'} onKeyDown={onBrush ? press : undefined}
      onPointerDown={(event) => {
        if (!onBrush || event.button !== 0) return
        svg.current!.setPointerCapture(event.pointerId)
        drag.current = at(event)
        setRange([drag.current, drag.current])
      }}
      onPointerMove={(event) => {
        setHover(at(event))
        if (drag.current >= 0) setRange([drag.current, at(event)])
      }}
      onPointerUp={(event) => {
        if (drag.current < 0) return
        const start = drag.current
        drag.current = -1
        take(start, at(event))
      }}
      onPointerLeave={() => drag.current < 0 && setHover(-1)}>
      <line x1={0} x2={width} y1={bottom + 0.5} y2={bottom + 0.5} stroke={rule} />
      {buckets.map((bucket, i) => {
        const left = (i * width) / buckets.length
        const inside = lo !== null && hi !== null && i >= lo && i <= hi
        return (
          <rect key={bucket.from} x={left + 0.5} width={Math.max(1, width / buckets.length - 1)} y={bucket.count ? y(bucket.count) : bottom}
            height={bucket.count ? Math.max(1.5, bottom - y(bucket.count)) : 0} rx={1}
            fill={inside || i === hover ? 'var(--color-accent)' : 'color-mix(in srgb, var(--color-accent) 55%, transparent)'} />
        )
      })}
      {lo !== null && hi !== null && (
        <rect x={(lo * width) / buckets.length} width={((hi - lo + 1) * width) / buckets.length} y={0} height={bottom}
          fill="var(--color-accent)" opacity={0.12} />
      )}
      {ticks.map((t) => (
        <text key={t.getTime()} x={Math.min(width - 28, Math.max(step < 60_000 ? 26 : 18, x(t)))} y={height - 3} textAnchor="middle" {...tick}>{timeTick(t, step)}</text>
      ))}
      <text x={2} y={11} {...tick}>{short(most)}</text>
      {shown && (
        <text x={width - 2} y={11} textAnchor="end" {...tick} fill="var(--color-text)">
          {time(new Date(shown.from))} · {count(shown.count)}
        </text>
      )}
    </svg>
  )
}
