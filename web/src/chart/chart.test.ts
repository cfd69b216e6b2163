import { expect, test } from 'vitest'
import { timeTick } from './frame'
import { spaced } from './LineChart'
import { lastDays, stack } from './StackedBars'
import { tree, type Span } from './Waterfall'

const span = (id: string, parent: string | undefined, start: number): Span => ({ id, parent, name: id, start, end: start + 1 })

test('a tree loses no span: not with a missing parent, and not in a circle', () => {
  const spans = [span('a', undefined, 0), span('b', 'a', 1), span('c', 'gone', 2), span('d', 'e', 3), span('e', 'd', 4), span('f', 'f', 5)]
  expect(tree(spans).map((line) => line.span.id).sort()).toEqual(['a', 'b', 'c', 'd', 'e', 'f'])
})

test('a folded span hides what is below it', () => {
  const spans = [span('a', undefined, 0), span('b', 'a', 1), span('c', 'b', 2), span('d', undefined, 3)]
  expect(tree(spans, new Set(['a'])).map((line) => line.span.id)).toEqual(['a', 'd'])
})

test('thirty thousand spans in one chain do not overflow the stack', () => {
  const spans = Array.from({ length: 30_000 }, (_, i) => span(`s${i}`, i ? `s${i - 1}` : undefined, i))
  expect(tree(spans)).toHaveLength(30_000)
})

test('stacked bars keep the total, whatever is drawn as other', () => {
  const days = lastDays(3, new Date('2026-03-02T12:00:00Z'))
  expect(days).toEqual(['2026-02-28', '2026-03-01', '2026-03-02'])
  const values = Array.from({ length: 12 }, (_, i) => ({ day: days[i % 3]!, group: `m${i}`, value: i + 1 }))
  const { groups, byDay } = stack(values, days, 8)
  expect(groups).toHaveLength(8)
  expect([...byDay.values()].flat().reduce((a, b) => a + b, 0)).toBe(78)
})

test('labels of an axis have room', () => {
  expect(spaced([0, 1, 2, 3, 4, 5], (t) => t * 30, 64)).toEqual([0, 3])
  expect(spaced([], (t) => t, 64)).toEqual([])
})

test('half days are told apart', () => {
  const half = 12 * 3_600_000
  expect(timeTick(new Date(2026, 10, 18, 0, 0), half)).toBe('18 Nov')
  expect(timeTick(new Date(2026, 10, 18, 12, 0), half)).toBe('12:00')
})
