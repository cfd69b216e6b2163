import clsx from 'clsx'
import { useMemo, useRef, useState, type KeyboardEvent } from 'react'
import { useVirtualizer } from '@tanstack/react-virtual'
import { duration } from '../format'

export interface Span {
  id: string
  parent?: string
  name: string
  start: number // milliseconds
  end: number
  failed?: boolean
  note?: string
}

export interface Line { span: Span; depth: number; children: number }

/** Spans in the order of a tree, earliest first. A parent that is missing, or a circle of parents, loses no span. */
export function tree(spans: Span[], closed: ReadonlySet<string> = new Set()): Line[] {
  const known = new Set(spans.map((span) => span.id))
  const children = new Map<string, Span[]>()
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    const parent = span.parent !== undefined && known.has(span.parent) && span.parent !== span.id ? span.parent : ''
    const list = children.get(parent)
    if (list) list.push(span)
    else children.set(parent, [span])
  }
  const lines: Line[] = []
  const seen = new Set<string>()
  const walk = (from: Span[], depth: number, hidden: boolean) => {
    const stack = from.map((span) => ({ span, depth, hidden })).reverse()
    while (stack.length) {
      const { span, depth: at, hidden: hide } = stack.pop()!
      if (seen.has(span.id)) continue
      seen.add(span.id)
      const below = children.get(span.id) ?? []
      if (!hide) lines.push({ span, depth: at, children: below.length })
      const hideBelow = hide || closed.has(span.id)
      for (let i = below.length - 1; i >= 0; i--) stack.push({ span: below[i]!, depth: at + 1, hidden: hideBelow })
    }
  }
  walk(children.get('') ?? [], 0, false)
  for (const span of spans) if (!seen.has(span.id)) walk([span], 0, false)
  return lines
}

interface Props { label: string; spans: Span[]; chosen?: string; onChoose?: (id: string) => void; height?: string }

const rowHeight = 30

/** A tree of steps with their times beside it. Arrows move and fold; it draws the steps in view alone. */
export function Waterfall({ label, spans, chosen, onChoose, height = '60vh' }: Props) {
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set())
  const lines = useMemo(() => tree(spans, closed), [spans, closed])
  const scroller = useRef<HTMLDivElement>(null)
  const virtual = useVirtualizer({
    count: lines.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, overscan: 16,
  })
  const { start, length } = useMemo(() => {
    let [lo, hi] = [Infinity, -Infinity]
    for (const span of spans) [lo, hi] = [Math.min(lo, span.start), Math.max(hi, span.end)]
    return { start: lo, length: Math.max(1, hi - lo) }
  }, [spans])
  const at = lines.findIndex((l) => l.span.id === chosen)
  const fold = (id: string, close: boolean) => setClosed((before) => {
    const next = new Set(before)
    if (close) next.add(id)
    else next.delete(id)
    return next
  })
  const choose = (i: number) => {
    const next = lines[Math.max(0, Math.min(lines.length - 1, i))]
    if (!next) return
    onChoose?.(next.span.id)
    virtual.scrollToIndex(lines.indexOf(next), { align: 'auto' })
  }
  const press = (event: KeyboardEvent) => {
    const here = lines[at]
    if (event.key === 'ArrowDown') choose(at + 1)
    else if (event.key === 'ArrowUp') choose(at - 1)
    else if (event.key === 'Home') choose(0)
    else if (event.key === 'End') choose(lines.length - 1)
    else if (here && event.key === 'ArrowLeft') {
      if (here.children && !closed.has(here.span.id)) fold(here.span.id, true)
      else choose(lines.findIndex((l) => l.span.id === here.span.parent))
    } else if (here && event.key === 'ArrowRight') {
      if (closed.has(here.span.id)) fold(here.span.id, false)
      else choose(at + 1)
    } else return
    event.preventDefault()
  }
  return (
    <div ref={scroller} role="tree" aria-label={label} tabIndex={0} onKeyDown={press} style={{ maxHeight: height }}
      aria-activedescendant={chosen && at >= 0 ? `step-${chosen}` : undefined} className="overflow-auto text-sm">
      <div role="none" aria-hidden className="sticky top-0 z-10 grid grid-cols-[minmax(110px,40%)_1fr] border-b border-line bg-surface py-0.5 text-xs text-faint">
        <span />
        <span className="mr-18 flex justify-between"><span>0</span><span>{duration(length / 2)}</span><span>{duration(length)}</span></span>
      </div>
      <div role="none" className="relative" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const { span, depth, children } = lines[item.index]!
          const left = ((span.start - start) / length) * 100
          const width = ((span.end - span.start) / length) * 100
          const isChosen = span.id === chosen
          return (
            <div key={span.id} id={`step-${span.id}`} role="treeitem" aria-level={depth + 1} aria-selected={isChosen}
              aria-expanded={children ? !closed.has(span.id) : undefined} onClick={() => onChoose?.(span.id)}
              style={{ position: 'absolute', top: item.start, height: rowHeight }}
              className={clsx('grid w-full cursor-pointer grid-cols-[minmax(110px,40%)_1fr] items-center border-b border-line',
                isChosen ? 'bg-accent-ground' : 'hover:bg-hover')}>
              <span className="flex min-w-0 items-center gap-1 pr-2" style={{ paddingLeft: 8 + Math.min(depth, 12) * 14 }}>
                <span aria-hidden className="w-4 shrink-0 text-center text-faint" onClick={(event) => {
                  event.stopPropagation()
                  fold(span.id, !closed.has(span.id))
                }}>{children ? (closed.has(span.id) ? '▸' : '▾') : ''}</span>
                <span className={clsx('truncate', span.failed && 'text-fail')}>{span.name}</span>
                {span.note && <span className="truncate text-xs text-faint max-sm:hidden">{span.note}</span>}
              </span>
              <span className="relative mr-18 h-4">
                <span className={clsx('absolute h-full rounded-xs', span.failed ? 'bg-fail' : 'bg-accent')}
                  style={{ left: `${left}%`, width: `max(2px, ${width}%)`, opacity: isChosen ? 1 : 0.7 }} />
                <span className="absolute -right-15 w-14 text-right text-xs leading-4 text-soft">{duration(span.end - span.start)}</span>
              </span>
            </div>
          )
        })}
      </div>
    </div>
  )
}
