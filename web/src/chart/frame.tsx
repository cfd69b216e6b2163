// What every chart shares: a title, a figure that resizes with its column, and the same numbers as a table.
import { TableIcon } from 'lucide-react'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { Button } from '../ui/Button'

/** The colours of series, in order. They differ in lightness as well, and every series is named in the legend. */
export const palette = [
  'light-dark(#0b6b67,#4fc3bc)', 'light-dark(#2b5ea7,#8cb4ee)', 'light-dark(#9a5b00,#e3b261)', 'light-dark(#8b3a8f,#d59ad9)',
  'light-dark(#5b6b1c,#b4c46a)', 'light-dark(#a8402d,#ef9a86)', 'light-dark(#4a4f9c,#aab0f5)', 'light-dark(#6b7472,#98a3a0)',
]

export const colour = (i: number): string => palette[i % palette.length]!

export interface ChartTable { headers: string[]; rows: (string | number)[][] }

interface FrameProps {
  title: string
  /** One sentence that says what is seen, for who cannot see it. */
  summary: string
  table: ChartTable
  /** In pixels; a function where it depends on the width. */
  height: number | ((width: number) => number)
  legend?: ReactNode
  /** Draws the figure for a width in pixels. */
  children: (width: number) => ReactNode
}

export function ChartFrame({ title, summary, table, height, legend, children }: FrameProps) {
  const [asTable, setAsTable] = useState(false)
  const box = useRef<HTMLDivElement>(null)
  const [width, setWidth] = useState(0)
  useEffect(() => {
    const node = box.current
    if (!node || asTable) return
    const observer = new ResizeObserver(() => setWidth(node.clientWidth))
    observer.observe(node)
    setWidth(node.clientWidth)
    return () => observer.disconnect()
  }, [asTable])
  return (
    <figure aria-label={title}>
      <figcaption className="mb-1 flex min-h-6 flex-wrap items-center gap-x-3 gap-y-1 text-xs text-soft">
        <span className="font-medium">{title}</span>
        {legend}
        <Button small look="quiet" aria-pressed={asTable} className="no-print ml-auto" icon={<TableIcon size={12} />}
          onClick={() => setAsTable(!asTable)}>{asTable ? 'Chart' : 'Table'}</Button>
      </figcaption>
      {asTable ? <PlainTable {...table} caption={title} /> : (
        <div ref={box} style={{ height: typeof height === 'number' ? height : height(width || 600) }} className="w-full">
          <span className="only-read">{summary}</span>
          {width > 0 && children(width)}
        </div>
      )}
    </figure>
  )
}

/** A small table of numbers. */
export function PlainTable({ headers, rows, caption }: ChartTable & { caption?: string }) {
  return (
    <div tabIndex={0} role="region" aria-label={caption} className="max-h-80 overflow-auto rounded-md border border-line">
      <table className="w-full text-xs">
        <thead className="sticky top-0 bg-raised text-left">
          <tr>{headers.map((header, i) => <th key={i} scope="col" className="px-2 py-1 font-medium">{header}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row, i) => (
            <tr key={i} className="border-t border-line">
              {row.map((cell, n) => <td key={n} className={`px-2 py-1 ${typeof cell === 'number' ? 'text-right' : ''}`}>{cell}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

export const Legend = ({ names, colours = colour }: { names: string[]; colours?: (i: number) => string }) => (
  <span className="flex flex-wrap gap-x-3 gap-y-0.5">
    {names.map((name, i) => (
      <span key={name} className="inline-flex max-w-48 items-center gap-1 truncate">
        <span aria-hidden className="size-2 shrink-0 rounded-xs" style={{ background: colours(i) }} />{name}
      </span>
    ))}
  </span>
)

/** The text of an axis. */
export const tick = { fill: 'var(--color-faint)', fontSize: 11, fontVariantNumeric: 'tabular-nums' } as const
export const rule = 'var(--color-line)'

/** Short labels for times whose ticks are `step` milliseconds apart. */
export function timeTick(t: Date, step: number): string {
  const two = (n: number) => String(n).padStart(2, '0')
  const clock = `${two(t.getHours())}:${two(t.getMinutes())}`
  const date = `${t.getDate()} ${['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'][t.getMonth()]}`
  if (step < 60_000) return `${clock}:${two(t.getSeconds())}`
  return step < 24 * 3_600_000 && (t.getHours() || t.getMinutes()) ? clock : date
}
