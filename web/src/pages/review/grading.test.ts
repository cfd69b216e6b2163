import { expect, test } from 'vitest'
import { clockAhead, leaseOf, repeated, toTier, Trail } from './grading'

const memory = () => {
  const kept = new Map<string, string>()
  return { getItem: (k: string) => kept.get(k) ?? null, setItem: (k: string, v: string) => void kept.set(k, v) }
}

test('the trail leads back and forth through the items that were seen', () => {
  const store = memory()
  const trail = new Trail('q', store)
  for (const id of ['a', 'b', 'c', 'b']) trail.see(id)
  expect(trail.before('c')).toBe('b')
  expect(trail.after('a')).toBe('b')
  expect(trail.after('c')).toBeUndefined()
  expect(trail.before('a')).toBeUndefined()
  expect(trail.before(undefined)).toBe('c')
  expect(trail.place('b')).toBe(2)
  expect(new Trail('q', store).length).toBe(3)
})

test('a broken or absent store is an empty trail', () => {
  expect(new Trail('q', { getItem: () => '{', setItem: () => {} }).length).toBe(0)
  expect(new Trail('q', { getItem: () => '{"a":1}', setItem: () => {} }).length).toBe(0)
  const none = new Trail('q', null)
  none.see('a')
  expect(none.length).toBe(1)
})

test('a step folds what the step before has shown, its answer too', () => {
  const ask = { role: 'user', content: 'x' }
  const answer = { role: 'assistant', content: 'y' }
  const first = { messages: [ask], response: answer }
  const sent = { role: 'assistant', content: 'y', refusal: null }
  expect(repeated(undefined, first)).toBe(0)
  expect(repeated(first, { messages: [ask, answer, { role: 'tool', content: 'z' }], response: answer })).toBe(2)
  expect(repeated(first, { messages: [ask, sent, { role: 'tool', content: 'z' }], response: answer })).toBe(2)
  expect(repeated(first, { messages: [{ role: 'user', content: 'other' }], response: answer })).toBe(0)
  expect(repeated(first, { messages: 'text', response: answer })).toBe(0)
})

test('a lease is held, is soon over, and is over', () => {
  const at = Date.parse('2026-01-01T00:00:00Z')
  const item = { claim: { id: 'c', lease_until: '2026-01-01T00:10:00Z' } }
  expect(leaseOf(item, at)).toEqual({ state: 'held', minutes: 10, soon: false })
  expect(leaseOf(item, at + 9 * 60_000)).toEqual({ state: 'held', minutes: 1, soon: true })
  expect(leaseOf(item, at + 10 * 60_000)).toEqual({ state: 'over' })
  expect(leaseOf({ claim: null }, at)).toEqual({ state: 'none' })
  const wrong = at + 3_600_000 // an hour ahead of the server, which gave the claim for ten minutes just now
  expect(leaseOf(item, wrong + clockAhead(item.claim.lease_until, 10, wrong))).toMatchObject({ state: 'held', minutes: 10 })
})

test('a tier is done when no class lacks anything', () => {
  expect(toTier({ pass: 20, fail: 70 }, { pass: 40, fail: 0 })).toEqual({
    pass: { has: 20, of: 60, lacks: 40 }, fail: { has: 70, of: 70, lacks: 0 }, done: false,
  })
  expect(toTier({ pass: 1, fail: 1 }, { pass: 0, fail: 0 }).done).toBe(true)
})
