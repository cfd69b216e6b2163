// Values as they stand in tables and tiles.
import clsx from 'clsx'
import type { ReactNode } from 'react'
import * as format from '../format'
import { A } from './Link'

/** A money amount; the title has every digit. */
export const Money = ({ usd, className }: { usd: number | null | undefined; className?: string }) =>
  usd === null || usd === undefined ? <span className="text-faint">–</span>
    : <span className={className} title={format.exactMoney(usd)}>{format.money(usd)}</span>

/** A time in the reader's zone; the title and the screen reader have UTC. */
export function Time({ value, short, relative }: { value?: string | null; short?: boolean; relative?: boolean }) {
  if (!value) return <span className="text-faint">–</span>
  const t = new Date(value)
  const shown = relative ? format.ago(t) : short ? format.shortTime(t) : format.time(t)
  return <time dateTime={value} title={relative ? `${format.time(t)} · ${format.utc(t)}` : format.utc(t)}>{shown}</time>
}

/** What an action will cost at most, before it is done. */
export function Price({ usd, upTo, loading }: { usd?: number | null; upTo?: boolean; loading?: boolean }) {
  if (loading) return <Skeleton className="inline-block h-4 w-20" />
  if (usd === undefined || usd === null) return <span className="text-soft">price not known</span>
  return <span className="text-soft">{upTo ? 'at most ' : 'about '}<Money usd={usd} className="font-medium text-text" /></span>
}

/** The shape of what is being read. */
export const Skeleton = ({ className }: { className?: string }) => <div aria-hidden className={clsx('skeleton', className)} />

export const SkeletonLines = ({ lines = 4 }: { lines?: number }) => (
  <div role="status" aria-label="Loading" className="space-y-2.5 py-2">
    {Array.from({ length: lines }, (_, i) => <Skeleton key={i} className={clsx('h-4', ['w-4/5', 'w-full', 'w-3/5'][i % 3])} />)}
  </div>
)

interface StatProps { label: string; value: ReactNode; hint?: ReactNode; to?: string; query?: Record<string, string>; loading?: boolean }

/** One number, and the rows behind it. */
export function Stat({ label, value, hint, to, query, loading }: StatProps) {
  const inner = (
    <>
      <span className="block text-xs text-soft">{label}</span>
      <span className="mt-0.5 line-clamp-2 text-xl font-semibold break-words max-sm:text-lg">{loading ? <Skeleton className="h-7 w-24" /> : value}</span>
      {hint && <span className="block text-xs break-words text-faint">{hint}</span>}
    </>
  )
  const look = 'card block min-w-0 px-3.5 py-2.5'
  return to === undefined ? <div className={look}>{inner}</div>
    : <A to={to} query={query} className={clsx(look, 'hover:border-edge')}>{inner}</A>
}

export const Stats = ({ children }: { children: ReactNode }) => (
  <div className="grid grid-cols-2 gap-2.5 sm:grid-cols-[repeat(auto-fit,minmax(130px,1fr))]">{children}</div>
)

/** Names and values, one pair in a line. */
export function Facts({ rows }: { rows: [ReactNode, ReactNode][] }) {
  return (
    <dl className="grid grid-cols-[minmax(96px,auto)_1fr] gap-x-4 gap-y-1 text-sm">
      {rows.map(([name, value], i) => (
        <div key={i} className="contents"><dt className="text-soft">{name}</dt><dd className="min-w-0 break-words">{value}</dd></div>
      ))}
    </dl>
  )
}

/** Progress of a job. */
export function Progress({ done, total, label, unit }: { done: number; total: number; label: string; unit?: string }) {
  const share = total > 0 ? Math.min(1, done / total) : 0
  return (
    <div className="flex items-center gap-2">
      <div role="progressbar" aria-label={label} aria-valuenow={done} aria-valuemin={0} aria-valuemax={total}
        className="h-1.5 min-w-16 flex-1 overflow-hidden rounded-full bg-raised">
        <div className="h-full bg-accent transition-[width]" style={{ width: `${share * 100}%` }} />
      </div>
      <span className="text-xs text-soft">{format.count(done)} / {format.count(total)}{unit && ` ${unit}`}</span>
    </div>
  )
}
