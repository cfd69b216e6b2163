import { expect, test } from 'vitest'
import { historyOf, intervalsOf } from './blocks'
import { changes } from './changes'

test('changes name what differs, and nothing else', () => {
  expect(changes({ rubric: 'a', version: 1, updated_at: 1 }, { rubric: 'b', version: 1, updated_at: 2 })).toEqual([{ name: 'rubric', before: 'a', after: 'b' }])
  expect(changes(null, { name: 'x', few_shot: null })).toEqual([{ name: 'name', before: '', after: 'x' }])
  expect(changes(undefined, undefined)).toEqual([])
})

const block = { se: 0.9, se_ci: [0.8, 0.95], sp: null, sp_ci: null, kappa: 0.7, kappa_ci: null } as never

test('what was not measured has no interval', () => {
  expect(intervalsOf(block)).toEqual([
    { label: 'Sensitivity', value: 0.9, low: 0.8, high: 0.95, unsure: undefined },
    { label: 'Kappa', value: 0.7, low: 0.7, high: 0.7, unsure: undefined, note: 'no interval' },
  ])
  expect(intervalsOf(block, { prefix: 'After', unsure: true, kappa: false })).toMatchObject([{ label: 'After sensitivity', unsure: true }])
})

test('history is in the order of time, of finished runs alone', () => {
  const run = (at: string, status: string, b: unknown) => ({ status, aligned_at: at, created_at: at, finished_at: at, block: b }) as never
  const { series } = historyOf([run('2026-02-01T00:00:00Z', 'DONE', block), run('2026-01-01T00:00:00Z', 'DONE', block), run('2026-03-01T00:00:00Z', 'FAILED', null)])
  expect(series[0]!.points.map((p) => p.x)).toEqual([Date.parse('2026-01-01T00:00:00Z'), Date.parse('2026-02-01T00:00:00Z')])
  expect(series[0]!.points[0]).toMatchObject({ y: 0.9, low: 0.8, high: 0.95 })
  expect(series[1]!.points[0]!.y).toBeNull()
  const close = historyOf([run('2026-01-01T00:00:01Z', 'DONE', block), run('2026-01-01T00:00:00Z', 'DONE', block)])
  expect(close.xTime).toBe(false)
  expect(close.series[0]!.points.map((p) => p.x)).toEqual([1, 2])
})
