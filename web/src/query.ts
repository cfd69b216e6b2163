// The query string is the state of a view. A page declares its parameters once; unknown and broken values are dropped,
// and values that equal the default are not written.
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useCallback, useMemo, useRef } from 'react'

export interface Param<T> {
  read: (text: string | undefined) => T
  write: (value: T) => string | undefined
}

export const text = (fallback = ''): Param<string> => ({
  read: (value) => value ?? fallback,
  write: (value) => (value === fallback ? undefined : value),
})

export const int = (fallback: number, least = 0, most = Number.MAX_SAFE_INTEGER): Param<number> => ({
  read: (value) => {
    const n = value && /^-?\d+$/.test(value) ? Number(value) : fallback
    return n < least || n > most ? fallback : n
  },
  write: (value) => (value === fallback ? undefined : String(value)),
})

export const flag: Param<boolean> = {
  read: (value) => value === 'true',
  write: (value) => (value ? 'true' : undefined),
}

export const oneOf = <T extends string>(values: readonly T[], fallback: T): Param<T> => ({
  read: (value) => (values.includes(value as T) ? (value as T) : fallback),
  write: (value) => (value === fallback ? undefined : value),
})

export type Schema = Record<string, Param<any>>
export type State<S extends Schema> = { [K in keyof S]: S[K] extends Param<infer T> ? T : never }

export function readState<S extends Schema>(schema: S, query: Record<string, string | undefined>): State<S> {
  return Object.fromEntries(Object.entries(schema).map(([name, param]) => [name, param.read(query[name])])) as State<S>
}

export function writeState<S extends Schema>(schema: S, state: Partial<State<S>>): Record<string, string> {
  const query: Record<string, string> = {}
  for (const [name, param] of Object.entries(schema)) {
    const value = state[name]
    const written = value === undefined ? undefined : param.write(value)
    if (written !== undefined && written !== '') query[name] = written
  }
  return query
}

/** The state of the view, and how to change parts of it. `push` makes the change a step of the browser's history. */
export function useQueryState<S extends Schema>(
  schema: S,
): [State<S>, (change: Partial<State<S>>, how?: { push?: boolean }) => void] {
  const query = useSearch({ strict: false }) as Record<string, string>
  const navigate = useNavigate()
  const state = useMemo(() => readState(schema, query), [schema, query])
  const latest = useRef({ state, query })
  latest.current = { state, query }
  const set = useCallback(
    (change: Partial<State<S>>, how?: { push?: boolean }) => {
      const rest = Object.fromEntries(Object.entries(latest.current.query).filter(([name]) => !(name in schema)))
      const next = { ...rest, ...writeState(schema, { ...latest.current.state, ...change }) }
      latest.current = { query: next, state: readState(schema, next) }
      void navigate({ to: '.', search: next as never, replace: !how?.push, resetScroll: false })
    },
    [navigate, schema],
  )
  return [state, set]
}

/** Plain names and values, as people and other programs write them: never JSON in a query string. */
export const parseSearch = (search: string): Record<string, string> => Object.fromEntries(new URLSearchParams(search))

export function stringifySearch(query: Record<string, unknown>): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '')
  const out = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString()
  return out && `?${out}`
}
