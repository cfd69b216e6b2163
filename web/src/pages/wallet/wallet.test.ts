import { expect, test } from 'vitest'
import { balances, dayAfter, daysBetween, holdLink, lasts } from './balance'
import type { Transfer } from './shapes'

const transfer = (at: string, amount: number): Transfer => ({ id: at, kind: 'x', memo: '', at, amount_usd: amount, lines: [] })

test('the balance is followed back from now to what it was before the first transfer', () => {
  const points = balances(23.8, [transfer('2026-01-03T00:00:00Z', -1), transfer('2026-01-02T00:00:00Z', -0.2), transfer('2026-01-01T00:00:00Z', 25)])
  expect(points.map((p) => p.y)).toEqual([0, 25, 24.8, 23.8])
  expect(points.every((p, i) => i === 0 || p.x > points[i - 1]!.x)).toBe(true)
  expect(balances(5, [])).toEqual([])
})

test('days are UTC days, both ends included, over the change of a month and of clocks', () => {
  expect(daysBetween('2026-02-27', '2026-03-01')).toEqual(['2026-02-27', '2026-02-28', '2026-03-01'])
  expect(daysBetween('2026-03-28', '2026-03-30')).toHaveLength(3)
  expect(daysBetween('2026-03-02', '2026-03-01')).toEqual([])
  expect(daysBetween('2000-01-01', '2026-01-01')).toHaveLength(732)
})

test('a hold leads to what it is for', () => {
  expect(holdLink({ id: 'rs_1', kind: 'reward' })).toBe('rewards/rs_1')
  expect(holdLink({ id: 'other', kind: 'x' })).toBeUndefined()
  expect(lasts(10, 5, 30)).toBe(60)
  expect(lasts(10, 0, 30)).toBeUndefined()
})

test('a range of days ends where the next day begins', () => {
  expect(dayAfter('2026-02-28')).toBe('2026-03-01T00:00:00.000Z')
})
