import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query'
import { useCallback, useEffect, useRef, useState } from 'react'
import { call, data, v1, type Query } from '../../api/client'
import type { Log } from './messages'

export const pageSize = 50

interface Bucket { from: string; to: string; count: number | null }
export interface HistogramData { buckets: Bucket[]; total: number; from: string; to: string }
export interface FacetValue { value: string; count: number }
export interface Facets { models: FacetValue[]; tags: FacetValue[]; segments: FacetValue[]; finish_reasons: FacetValue[]; cached: FacetValue[] }

export const useHistogram = (ws: string, filters: Query, on: boolean) => useQuery({
  queryKey: ['logs', ws, 'histogram', filters], enabled: on, placeholderData: keepPreviousData,
  queryFn: ({ signal }) => call<HistogramData>(ws, 'GET', '/logs/histogram', { query: { ...filters, buckets: 80 }, signal }),
})

export const useFacets = (ws: string, filters: Query, on: boolean) => useQuery({
  queryKey: ['logs', ws, 'facets', filters.start, filters.end], enabled: on, placeholderData: keepPreviousData, staleTime: 60_000,
  queryFn: ({ signal }) => call<Facets>(ws, 'GET', '/logs/facets', { query: { start: filters.start, end: filters.end }, signal }),
})

/** Which pages a range of rows needs. */
export const pagesOf = (first: number, last: number): number[] => {
  const pages: number[] = []
  for (let p = Math.floor(first / pageSize); p <= Math.floor(last / pageSize); p++) pages.push(p)
  return pages
}

/**
 * Which rows a list that is scrolled reads: those in view, two pages further, and one before. At its top it reads what is
 * in view, so that the first view is one call.
 */
export const around = (first: number, last: number): [number, number] =>
  first === 0 ? [first, last] : [Math.max(0, first - pageSize), last + 2 * pageSize]

/**
 * The rows of a list that may have a million: pages are read as they come into view, and forgotten when they are far
 * away. A server's page may end early, so a row is known by its place and not by its page.
 */
export function useLogRows(ws: string, filters: Query, on: boolean) {
  const queries = useQueryClient()
  const [, redraw] = useState(0)
  const shape = JSON.stringify(filters)
  const read = useRef({ shape, rows: new Map<number, Log>(), asked: new Set<number>() })
  if (read.current.shape !== shape) read.current = { shape, rows: new Map(), asked: new Set() }

  const fetchAt = useCallback((offset: number, signal?: AbortSignal) =>
    data(v1(ws).GET('/v1/logs', { params: { query: { ...filters, limit: pageSize, offset } as never }, signal })),
  // eslint-disable-next-line react-hooks/exhaustive-deps -- shape stands for filters
  [ws, shape])

  const first = useQuery({
    queryKey: ['logs', ws, 'list', filters], enabled: on, placeholderData: keepPreviousData,
    queryFn: ({ signal }) => fetchAt(0, signal),
  })
  if (first.data && !first.isPlaceholderData && read.current.rows.size === 0) {
    first.data.data.forEach((row, i) => read.current.rows.set(i, row))
  }
  const total = first.data?.total ?? 0

  const seen = useRef([0, 0] as [number, number])
  const onRange = useCallback((from: number, to: number) => {
    const mine = read.current
    seen.current = [from, to]
    const [first, last] = around(from, to)
    for (const page of pagesOf(first, Math.min(last, Math.max(0, total - 1)))) {
      let missing = page * pageSize
      while (missing < Math.min((page + 1) * pageSize, total) && mine.rows.has(missing)) missing++
      if (missing >= Math.min((page + 1) * pageSize, total) || mine.asked.has(missing)) continue
      mine.asked.add(missing)
      const offset = missing
      fetchAt(offset).then((got) => {
        if (read.current !== mine) return
        got.data.forEach((row, i) => mine.rows.set(offset + i, row))
        forget(mine.rows, offset)
        const [top, bottom] = seen.current // what is not in view is drawn when it comes there
        if (offset <= bottom && offset + got.data.length > top) redraw((n) => n + 1)
      }).catch(() => undefined).finally(() => mine.asked.delete(offset))
    }
  }, [fetchAt, total])

  useEffect(() => () => void queries.cancelQueries({ queryKey: ['logs', ws, 'list'] }), [queries, ws])
  const at = (i: number): Log | undefined =>
    first.isPlaceholderData ? first.data?.data[i] : read.current.rows.get(i)
  return { first, total, at, onRange }
}

const mostRows = 5000

/** Keeps the rows that are nearest to a place. */
export function forget<T>(rows: Map<number, T>, near: number, most = mostRows) {
  if (rows.size <= most) return
  const far = [...rows.keys()].sort((a, b) => Math.abs(b - near) - Math.abs(a - near))
  for (const i of far.slice(0, rows.size - most)) rows.delete(i)
}

/** Rows as they are stored, newest first. The server says how many were dropped because the reader was too slow. */
export function useTail(ws: string, filters: Query, on: boolean) {
  const [rows, setRows] = useState<Log[]>([])
  const [dropped, setDropped] = useState(0)
  const [ended, setEnded] = useState('')
  const shape = JSON.stringify(filters)
  useEffect(() => {
    setRows([])
    setDropped(0)
    setEnded('')
    if (!on) return
    const query = new URLSearchParams(Object.entries(filters).filter(([, v]) => v !== undefined && v !== '').map(([k, v]) => [k, String(v)]))
    const source = new EventSource(`/dashboard/api/w/${encodeURIComponent(ws)}/logs/tail?${query}`)
    let waiting: Log[] = []
    const flush = setInterval(() => { // a burst is one redraw
      if (waiting.length === 0) return
      const fresh = waiting.reverse()
      waiting = []
      setRows((before) => [...fresh, ...before].slice(0, 1000))
    }, 250)
    source.addEventListener('log', (event) => void waiting.push(JSON.parse(event.data) as Log))
    source.addEventListener('dropped', (event) => setDropped((n) => n + (JSON.parse(event.data) as { count: number }).count))
    source.addEventListener('end', (event) => {
      setEnded((JSON.parse(event.data) as { reason: string }).reason)
      source.close()
    })
    source.onerror = () => source.readyState === EventSource.CLOSED && setEnded('refused')
    return () => {
      clearInterval(flush)
      source.close()
    }
    // eslint-disable-next-line react-hooks/exhaustive-deps -- shape stands for filters
  }, [ws, shape, on])
  return { rows, dropped, ended }
}
