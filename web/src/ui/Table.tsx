// A list of rows. It draws the rows in view alone, so that a million scroll as well as ten. Rows are chosen by j and k
// or the arrows and opened by Enter; on a phone a row is a card of two lines.
import { useVirtualizer } from '@tanstack/react-virtual'
import clsx from 'clsx'
import { ArrowDownIcon, ArrowUpIcon } from 'lucide-react'
import { memo, useCallback, useEffect, useId, useRef, useState, type KeyboardEvent, type ReactNode } from 'react'
import { useKeys } from '../keys'
import { useNarrow } from './narrow'
import { Skeleton } from './Values'

export interface Column<T> {
  id: string
  header: string
  cell: (row: T) => ReactNode
  /** A track of a CSS grid: "120px", "minmax(160px,2fr)". */
  width?: string
  right?: boolean
  /** Its place in a card: the first line, the second, or none. */
  card?: 'title' | 'line' | 'none'
  /** In a card the header stands before the value: for numbers that say nothing alone. */
  named?: boolean
  sortable?: boolean
}

interface Props<T> {
  label: string
  columns: Column<T>[]
  /** All rows, or how many there are with a way to read one; a row that is still being loaded is undefined. */
  rows: T[] | { count: number; at: (index: number) => T | undefined }
  rowKey: (row: T) => string
  onOpen?: (row: T, index: number) => void
  /** The chosen row, where the page keeps it. */
  active?: number
  onActive?: (index: number) => void
  /** Called with the rows in view, to load their pages. */
  onRange?: (first: number, last: number) => void
  /** The table is at most this high and scrolls by itself; without it the page scrolls. */
  height?: string
  sort?: { by: string; down: boolean }
  onSort?: (by: string, down: boolean) => void
  /** j, k and Enter work wherever the focus is. At most one table of a page has them. */
  keys?: boolean
  marked?: (row: T) => boolean
}

const rowHeight = 32
const cardHeight = 56

export function Table<T>(props: Props<T>) {
  const { label, columns, rows, rowKey, onOpen, onRange, height, keys } = props
  const narrow = useNarrow()
  const id = useId()
  const scroller = useRef<HTMLDivElement>(null)
  const [ownActive, setOwnActive] = useState(-1)
  const active = props.active ?? ownActive
  const count = Array.isArray(rows) ? rows.length : rows.count
  const at = (i: number) => (Array.isArray(rows) ? rows[i] : rows.at(i))
  const isVirtual = height !== undefined
  const virtual = useVirtualizer({
    count: isVirtual ? count : 0, getScrollElement: () => scroller.current, overscan: 12,
    estimateSize: () => (narrow ? cardHeight : rowHeight),
  })
  useEffect(() => virtual.measure(), [narrow, virtual])
  const items = virtual.getVirtualItems()
  const [firstSeen, lastSeen] = [items[0]?.index ?? 0, items[items.length - 1]?.index ?? 0]
  useEffect(() => {
    if (isVirtual && count > 0) onRange?.(firstSeen, lastSeen)
  }, [isVirtual, count, firstSeen, lastSeen, onRange])

  const move = (to: number) => {
    const next = Math.max(0, Math.min(count - 1, to))
    if (count === 0) return
    setOwnActive(next)
    props.onActive?.(next)
    if (isVirtual) virtual.scrollToIndex(next, { align: 'auto' })
    else document.getElementById(`${id}-${next}`)?.scrollIntoView({ block: 'nearest' })
  }
  const open = (i: number) => {
    const row = at(i)
    if (row !== undefined && onOpen) onOpen(row, i)
  }
  useKeys(label, [
    { keys: 'j', label: 'Next row', run: () => move(active + 1) },
    { keys: 'k', label: 'Previous row', run: () => move(active - 1) },
    ...(onOpen ? [{ keys: 'Enter', label: 'Open the row', run: () => open(active) }] : []),
  ], Boolean(keys))

  const press = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -count, End: count }
    if (event.target !== event.currentTarget) return
    if (event.key in steps) move(active + steps[event.key]!)
    else if (event.key === 'Enter' && active >= 0) open(active)
    else return
    event.preventDefault()
  }
  const least = columns.reduce((sum, column) => sum + Number(/\d+/.exec(column.width ?? '80')?.[0] ?? 80), 0)
  const template = columns.map((column) => column.width ?? 'minmax(80px,1fr)').join(' ')
  // The same function as long as the table stands: a frame of scrolling draws the rows that come into view, and no other.
  const choose = useRef((_: number) => {})
  choose.current = (index) => {
    setOwnActive(index)
    props.onActive?.(index)
    open(index)
  }
  const pick = useCallback((index: number) => choose.current(index), [])
  const Row = isVirtual ? KeptRow : DrawnRow
  const drawRow = (index: number, top?: number) => (
    <Row key={at(index) === undefined ? index : rowKey(at(index) as T)} id={`${id}-${index}`} row={at(index)} index={index} top={top}
      columns={columns} template={template} narrow={narrow} active={index === active} opens={Boolean(onOpen)}
      marked={at(index) !== undefined && Boolean(props.marked?.(at(index) as T))}
      onPick={pick} />
  )
  return (
    <div ref={scroller} role="grid" aria-label={label} aria-rowcount={count + 1} tabIndex={0} onKeyDown={press}
      aria-activedescendant={active >= 0 ? `${id}-${active}` : undefined} style={{ maxHeight: height }}
      className="relative overflow-auto rounded-lg text-sm">
      <div style={{ minWidth: narrow ? undefined : least }}>
        <Header {...props} template={template} narrow={narrow} />
        {isVirtual ? (
          <div role="rowgroup" className="relative" style={{ height: virtual.getTotalSize() }}>
            {items.map((item) => drawRow(item.index, item.start))}
          </div>
        ) : <div role="rowgroup">{Array.from({ length: count }, (_, i) => drawRow(i))}</div>}
      </div>
    </div>
  )
}

function Header<T>({ columns, sort, onSort, template, narrow }: Props<T> & { template: string; narrow: boolean }) {
  return (
    <div role="rowgroup" className={narrow ? 'only-read' : 'sticky top-0 z-10 bg-surface'}>
      <div role="row" aria-rowindex={1} style={{ gridTemplateColumns: template }}
        className="grid border-b border-line text-xs text-soft">
        {columns.map((column) => {
          const sorted = sort?.by === column.id ? (sort.down ? 'descending' : 'ascending') : undefined
          const Arrow = sort?.down ? ArrowDownIcon : ArrowUpIcon
          return (
            <div key={column.id} role="columnheader" aria-sort={sorted}
              className={clsx('truncate px-3 py-1.5 font-medium', column.right && 'text-right')}>
              {column.sortable && onSort ? (
                <button type="button" className="inline-flex items-center gap-1 hover:text-text"
                  onClick={() => onSort(column.id, sorted ? !sort?.down : true)}>
                  {column.header}{sorted && <Arrow size={12} aria-hidden />}
                </button>
              ) : column.header}
            </div>
          )
        })}
      </div>
    </div>
  )
}

interface RowProps<T> {
  id: string; row: T | undefined; index: number; top?: number; columns: Column<T>[]; template: string; narrow: boolean
  active: boolean; opens: boolean; marked: boolean; onPick: (index: number) => void
}

/** A row of a long list is drawn again when something of it has changed. */
const KeptRow = memo(DrawnRow) as typeof DrawnRow

function DrawnRow<T>({ id, row, index, top, columns, template, narrow, active, opens, marked, onPick }: RowProps<T>) {
  const look = clsx('border-b border-line', opens && 'cursor-pointer', active ? 'bg-accent-ground' : 'hover:bg-hover',
    marked && 'border-l-2 border-l-accent')
  const place = top === undefined ? undefined : { position: 'absolute' as const, transform: `translateY(${top}px)` }
  const shared = { id, role: 'row', 'aria-rowindex': index + 2, 'aria-selected': active, onClick: opens ? () => onPick(index) : undefined }
  if (narrow) {
    const cells = columns.filter((column) => column.card !== 'none')
    const titles = cells.filter((column, i) => column.card === 'title' || (i === 0 && !cells.some((c) => c.card === 'title')))
    const lines = cells.filter((column) => !titles.includes(column))
    return (
      <div {...shared} style={{ ...place, height: cardHeight }} className={clsx(look, 'w-full px-3 py-1.5')}>
        {row === undefined ? <Skeleton className="h-9 w-full" /> : <>
          <div className="flex justify-between gap-3 font-medium">
            {titles.map((column, i) => <div key={column.id} role="gridcell" className={i === 0 ? 'min-w-0 truncate' : 'max-w-1/2 shrink-0 truncate'}>{column.cell(row)}</div>)}
          </div>
          <div className="flex gap-3 overflow-hidden text-xs text-soft">
            {lines.map((column, i) => (
              <div key={column.id} role="gridcell" className={i === 0 ? 'max-w-1/2 shrink-0 truncate' : 'min-w-0 truncate'} title={column.header}>
                <span className={column.named ? 'text-faint' : 'only-read'}>{column.header}{column.named ? '' : ':'} </span>{column.cell(row)}
              </div>
            ))}
          </div>
        </>}
      </div>
    )
  }
  return (
    <div {...shared} style={{ ...place, height: rowHeight, gridTemplateColumns: template }}
      className={clsx(look, top !== undefined && 'contain-content', 'grid w-full items-center')}>
      {row === undefined ? <div role="gridcell" className="col-span-full px-3"><Skeleton className="h-3" /></div> : columns.map((column) => (
        <div key={column.id} role="gridcell" className={clsx('truncate px-3', column.right && 'text-right')}>{column.cell(row)}</div>
      ))}
    </div>
  )
}
