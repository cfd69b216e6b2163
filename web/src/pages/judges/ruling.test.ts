import { expect, test } from 'vitest'
import type { Report } from './api'
import { casesOf, sureness } from './ruling'

const report = {
  remaining: [{ label_id: 'a' }, { label_id: 'b' }], tied: [{ label_id: 't', request_id: null }], agreements_to_review: [{ label_id: 'x' }, { label_id: 'y' }],
} as unknown as Report

test('disagreements come before ties, and blind agreements last', () => {
  expect(casesOf(report).map((one) => one.label)).toEqual(['a', 'b', 't', 'x', 'y'])
})

test('what is left for later comes last within its kind', () => {
  expect(casesOf(report, new Set(['a', 'x'])).map((one) => one.label)).toEqual(['b', 'a', 't', 'y', 'x'])
})

test('a blind case carries nothing but its label', () => {
  expect(casesOf(report).at(-1)).toEqual({ kind: 'blind', label: 'y' })
})

test('a judge is sure of a fail when its grade is low', () => {
  expect(sureness('fail', 0.1)).toBeCloseTo(0.9)
  expect(sureness('pass', 0.7)).toBeCloseTo(0.7)
})
