// The filters of the Logs page: a row of the query string, and what is asked of the server.
import type { Query } from '../../api/client'
import { flag, oneOf, text, type State } from '../../query'

export const ranges = [
  { value: '1h', label: 'Last hour', hours: 1 }, { value: '24h', label: 'Last 24 hours', hours: 24 },
  { value: '7d', label: 'Last 7 days', hours: 168 }, { value: '30d', label: 'Last 30 days', hours: 720 },
  { value: 'all', label: 'All that is kept', hours: 0 },
] as const

export const schema = {
  model: text(), tag: text(), segment: text(), finish_reason: text(), cache_hit: oneOf(['', 'true', 'false'], ''),
  range: oneOf(ranges.map((r) => r.value), 'all'), start: text(), end: text(),
  row: text(), tail: flag,
}

export type LogState = State<typeof schema>

export const facetNames = ['model', 'tag', 'segment', 'finish_reason', 'cache_hit'] as const
export type FacetName = (typeof facetNames)[number]

/**
 * What is asked of the server. `asOf` is the end of a list that goes on growing: rows that come later must not move the
 * ones that are shown.
 */
export function serverFilters(state: LogState, asOf: Date): Query {
  const hours = ranges.find((r) => r.value === state.range)?.hours ?? 0
  const start = state.start || (hours ? new Date(asOf.getTime() - hours * 3_600_000).toISOString() : undefined)
  return {
    ...facetFilters(state), start, end: state.end || asOf.toISOString(),
  }
}

export function facetFilters(state: LogState): Query {
  return Object.fromEntries(facetNames.map((name) => [name, state[name] || undefined]))
}

/** The filters of a dataset that is frozen from this view. */
export function selection(state: LogState, asOf: Date): Record<string, unknown> {
  const { cache_hit, ...rest } = serverFilters(state, asOf)
  const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined && value !== ''))
  return cache_hit === undefined ? given : { ...given, cache_hit: cache_hit === 'true' }
}

export const isFiltered = (state: LogState): boolean =>
  facetNames.some((name) => state[name] !== '') || state.start !== '' || state.end !== '' || state.range !== 'all'
