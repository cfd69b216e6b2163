import { expect, test } from 'vitest'
import { readState } from '../query'
import { facetFilters, isFiltered, schema, selection, serverFilters } from './logs/filters'
import { answered, asked, readMessage, readMessages, type Log } from './logs/messages'
import { forget, pagesOf } from './logs/rows'
import { safeReturn } from '../app/return'
import { repeated, spans } from './traces/spans'

const now = new Date('2026-03-01T12:00:00Z')
const log = (more: Partial<Log>): Log => ({ id: 'log_1', created_at: now.toISOString(), latency_ms: 100, finish_reason: 'stop', model: 'm', ...more }) as Log

test('a view ends at a fixed time, so that new rows do not move the old ones', () => {
  const state = readState(schema, { range: '1h', model: 'm' })
  expect(serverFilters(state, now)).toMatchObject({ model: 'm', start: '2026-03-01T11:00:00.000Z', end: '2026-03-01T12:00:00.000Z' })
  expect(facetFilters(state)).not.toHaveProperty('start')
  expect(isFiltered(readState(schema, {}))).toBe(false)
})

test('a chosen range wins over a relative one, and a dataset gets the same filters', () => {
  const state = readState(schema, { range: '1h', start: '2026-01-01T00:00:00Z', end: '2026-01-02T00:00:00Z', cache_hit: 'true', tag: '' })
  expect(selection(state, now)).toEqual({ start: '2026-01-01T00:00:00Z', end: '2026-01-02T00:00:00Z', cache_hit: true })
})

test('whatever a caller sent as messages is read without an error', () => {
  for (const value of [null, undefined, 'x', 5, [], {}, [null], [{ content: [{ type: 'image_url' }, 'x', { text: 'y' }] }], { tool_calls: 'x' }, [{ tool_calls: [null, {}] }]]) {
    readMessages(value)
    readMessage(value)
    asked(log({ messages: value, response: value }))
    answered(log({ messages: value, response: value }))
  }
  expect(asked(log({ messages: [{ role: 'system', content: 's' }, { role: 'user', content: 'a\n b' }] }))).toBe('a b')
  expect(answered(log({ response: { tool_calls: [{ id: '1', function: { name: 'f', arguments: '{}' } }] } }))).toBe('f({})')
})

test('the pages of a range, and what is forgotten, are the nearest', () => {
  expect(pagesOf(49, 101)).toEqual([0, 1, 2])
  const rows = new Map(Array.from({ length: 10 }, (_, i) => [i, i]))
  forget(rows, 9, 3)
  expect([...rows.keys()]).toEqual([7, 8, 9])
})

test('after signing in the page leads to itself alone', () => {
  expect(safeReturn('/w/ws_1/logs?model=a%2Fb')).toBe('/w/ws_1/logs?model=a%2Fb')
  for (const path of ['//evil.test', 'https://evil.test', '/\\evil.test', 'javascript:alert(1)', '/w/../../x\n', '/sign-in?return=/w']) expect(safeReturn(path)).toBe('/')
})

test('tool calls take the time until the next step', () => {
  const first = log({ id: 'a', response: { tool_calls: [{ function: { name: 'search' } }] } })
  const second = log({ id: 'b', created_at: new Date(now.getTime() + 500).toISOString(), response: { content: 'x' } })
  const drawn = spans([first, second])
  expect(drawn.map((s) => s.name)).toEqual(['1 · m', 'search', '2 · m'])
  expect(drawn[1]!.end - drawn[1]!.start).toBe(400)
})

test('a step hides the messages of the step before only if it repeats all of them', () => {
  const [u, v, w] = ['u', 'v', 'w'].map((content) => ({ role: 'user', content }))
  expect(repeated(log({ messages: [u, v, w] }), log({ messages: [u, v] }))).toBe(2)
  expect(repeated(log({ messages: [u, w] }), log({ messages: [u, v] }))).toBe(0)
})
