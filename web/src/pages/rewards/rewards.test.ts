import { expect, test } from 'vitest'
import { burn, lastWords, logEvidence, processes, type Check, type Session } from './anchor'
import { snippets } from './snippets'

const check = (process: number, evidence: number): Check => ({
  anchor_ci: [0.1, 0.3], anchor_corrected: false, anchor_failed: 0, anchor_rate: 0.19, at: '', evidence, held: false, masked: 0, n: 32, process,
  requested: false, reward_rate: 0.72, step: '3',
})

test('a release begins a process of its own, which goes on where the last ended', () => {
  const made = processes([check(1, 1), check(1, 30), check(2, 1)])
  expect(made.map((one) => [one.process, one.checks.map((c) => c.at)])).toEqual([[1, [1, 2]], [2, [3]]])
})

test('the evidence is drawn by its logarithm, and none is not minus infinity', () => {
  expect(logEvidence(25)).toBeCloseTo(3.22, 2)
  expect(Number.isFinite(logEvidence(0))).toBe(true)
})

test('the last check is a sentence', () => {
  expect(lastWords(check(1, 115.2), 25)).toBe('At step 3 the reward passes 72 % of 32 completions and the anchor 19 %; the evidence against a healthy run is 115, and the run is held at 25.')
  expect(lastWords(undefined, 25)).toContain('No check')
})

test('a budget that is almost over is said while the session runs', () => {
  const session = (spent: number, status: string) => ({ budget_usd: 2, spent_usd: spent, status }) as Session
  expect(burn(session(1.9, 'ACTIVE'))).toEqual({ share: 0.95, low: true })
  expect(burn(session(1.9, 'STOPPED')).low).toBe(false)
})

test('every trainer gets this server and this session', () => {
  for (const one of snippets('rs_1', 'http://x', 'tok')) expect(one.text, one.id).toMatch(/http:\/\/x/)
  expect(snippets('rs_1', 'http://x', 'tok').find((one) => one.id === 'openrlhf')!.text).toContain('/rewards/v1/tok/openrlhf')
})
