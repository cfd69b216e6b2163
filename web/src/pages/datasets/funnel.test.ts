import { afterEach, expect, test, vi } from 'vitest'
import { firstLines, funnelOf, readExample, takeLines, type Dataset } from './funnel'

const dataset = (change: object = {}) => ({
  role: 'train', rows: 9, holdout_id: 'ds_2', holdout_of: null,
  curation: { scanned: 13, kept: 10, dropped: { errored: 0, truncated: 1, empty: 0, duplicate: 1 }, folded_conversations: 1, folded_turns: 1, capped: false }, ...change,
}) as unknown as Dataset

test('each step of the funnel loses what its reasons say', () => {
  const steps = funnelOf(dataset())
  expect(steps.map((step) => step.value)).toEqual([13, 11, 10, 9])
  for (let i = 1; i < steps.length; i++) {
    expect(steps[i - 1]!.value - steps[i]!.value).toBe((steps[i]!.lost ?? []).reduce((sum, one) => sum + one.value, 0))
  }
  expect(funnelOf(dataset({ holdout_id: null }))).toHaveLength(3)
})

test('lines are taken whole', () => {
  expect(takeLines('a\nb\nc', 9)).toEqual({ lines: ['a', 'b'], rest: 'c' })
  expect(takeLines('a\n\nb\n', 1)).toEqual({ lines: ['a'], rest: '' })
})

test('a line that is no JSON is kept as text', () => {
  expect(readExample('{"messages":[{"role":"user","content":"x"}]}').messages[0]!.text).toBe('x')
  expect(readExample('not json')).toEqual({ messages: [], tools: [], text: 'not json' })
  expect(readExample('null').messages).toEqual([])
})

afterEach(() => void vi.restoreAllMocks())

test('reading stops when there are enough lines', async () => {
  vi.spyOn(globalThis, 'fetch').mockImplementation(() => Promise.resolve(new Response('1\n2\n3\n4\n')))
  expect(await firstLines('http://h/x', 2)).toEqual(['1', '2'])
  expect(await firstLines('http://h/x', 9)).toEqual(['1', '2', '3', '4'])
})
