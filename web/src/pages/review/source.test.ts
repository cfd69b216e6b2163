import { expect, test } from 'vitest'
import { cleanSource, describePreview, describeSource, readIds } from './source'

test('ids are read from any list, each once', () => {
  expect(readIds(' req_1, req_2\nreq_1;run-7 ')).toEqual({ request_ids: ['req_1', 'req_2'], trace_ids: ['run-7'] })
  expect(readIds('  ')).toEqual({})
})

test('a source keeps what belongs to its kind, and no empty filter', () => {
  const all = { n: 5, filters: { tag: '', model: 'm' }, runs: { tag: 't' }, scan_id: 's', verdict: 'fail' as const }
  expect(cleanSource({ kind: 'logs', ...all })).toEqual({ kind: 'logs', n: 5, filters: { model: 'm' } })
  expect(cleanSource({ kind: 'traces', ...all })).toEqual({ kind: 'traces', n: 5, runs: { tag: 't' } })
  expect(cleanSource({ kind: 'scan', ...all })).toEqual({ kind: 'scan', n: 5, scan_id: 's', verdict: 'fail' })
  expect(cleanSource({ kind: 'disagreements', ...all })).toEqual({ kind: 'disagreements', n: 5 })
  expect(cleanSource({ kind: 'logs', n: 5, filters: { tag: '' } })).toEqual({ kind: 'logs', n: 5 })
})

test('a preview says how many of how many', () => {
  expect(describePreview({ kind: 'logs', n: 20 }, 7)).toBe('All 7 that match.')
  expect(describePreview({ kind: 'logs', n: 20 }, 1200)).toBe('20 of 1,200 that match.')
  expect(describePreview({ kind: 'logs' }, 0)).toContain('Nothing matches')
  expect(describePreview({ kind: 'traces', n: 20 }, null)).toBe('At most 20 items.')
  expect(describePreview({ kind: 'ids', request_ids: ['a'] }, undefined)).toContain('1 item')
})

test('a source in words names its filters', () => {
  expect(describeSource({ kind: 'logs', n: 20, filters: { tag: 'a' } })).toBe('A sample of logs · at most 20 · tag a')
  expect(describeSource(null)).toBe('–')
})
