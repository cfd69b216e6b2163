import { expect, test } from 'vitest'
import { around, forget, pageSize, pagesOf } from './rows'

test('at its top a list reads what is in view, and scrolled it reads ahead', () => {
  expect(pagesOf(...around(0, 30))).toEqual([0])
  expect(pagesOf(...around(20, 60))).toEqual([0, 1, 2, 3])
  expect(pagesOf(...around(10 * pageSize, 10 * pageSize + 40))).toEqual([9, 10, 11, 12])
})

test('the rows that are nearest stay', () => {
  const rows = new Map(Array.from({ length: 100 }, (_, i) => [i, i]))
  forget(rows, 90, 20)
  expect([...rows.keys()].sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => i + 80))
})
