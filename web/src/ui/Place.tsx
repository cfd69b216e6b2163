import type { ReactNode } from 'react'
import { shownEntries } from '../nav'
import { parseSearch } from '../query'
import { A } from './Link'

/** A place of the dashboard as the server names it: a page, and its query string. */
export interface Place { page: string; query: string }

/** Whether there is a page for it. */
export const hasPage = (place: Place | undefined): place is Place =>
  place !== undefined && shownEntries.some((entry) => entry.id === place.page.split('/')[0])

/** A link to a place; where there is no such page, the text alone. */
export function ToPlace({ place, children, className }: { place?: Place; children: ReactNode; className?: string }) {
  if (!hasPage(place)) return <span className={className === 'link' ? undefined : className}>{children}</span>
  return <A to={place.page === 'home' ? '' : place.page} query={parseSearch(place.query)} className={className}>{children}</A>
}
