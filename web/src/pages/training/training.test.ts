import { expect, test } from 'vitest'
import { readState } from '../../query'
import { adoptBody, incumbent, provers } from './adoption'
import type { Event, Grpo, Job, Lineage, Series } from './api'
import { chartsOf, extend, figure, said } from './curves'
import { depths, inOrder, layout } from './lineage'
import { verdict, type Round } from './raft'
import { grpoBody, grpoSchema, jobBody, jobSchema, lackingJob, lineFaults } from './request'
import { fromGrpo, fromJob, joined, shown } from './rows'

const at = (step: number, mean: number) => ({ step, mean, low: mean, high: mean })
const event = (seq: number, step: number, data: Record<string, number> | null): Event => ({
  seq, step, at: '', attempt: 1, level: 'info', type: data ? 'metrics' : 'message', message: data ? '' : `said ${seq}`, data,
})
const series: Series = { seq: 10, metrics: [{ name: 'loss', points: [at(1, 4), at(2, 3)] }], messages: [event(1, 0, null)] }

test('a followed run goes on where the series ended, and nothing is told twice', () => {
  const { curves, messages } = extend(series, [event(10, 2, { loss: 99 }), event(11, 3, { loss: 2 }), event(12, 3, null)])
  expect(curves.get('loss')).toEqual([at(1, 4), at(2, 3), at(3, 2)])
  expect(messages.map((one) => one.seq)).toEqual([1, 12])
  expect(series.metrics[0]!.points).toHaveLength(2) // the cache keeps what it has
})

test('a resumed attempt replaces the steps after its checkpoint', () => {
  const { curves } = extend(series, [event(11, 2, { loss: 2.5 })])
  expect(curves.get('loss')).toEqual([at(1, 4), at(2, 2.5)])
})

test('the reward is drawn with its spread, and what nobody knows under its own name', () => {
  const { first, rest } = chartsOf(new Map([['reward_mean', [at(1, 0.5)]], ['reward_std', [at(1, 0.2)]], ['entropy', [at(1, 3)]], ['loss', [at(1, 1)]], ['eval_loss', [at(1, 2)]]]))
  expect(first.map((chart) => chart.series.map((line) => line.name))).toEqual([['reward'], ['training', 'validation']])
  const point = first[0]!.series[0]!.points[0]!
  expect([point.low, point.high].map((y) => y?.toFixed(1))).toEqual(['0.3', '0.7'])
  expect(rest.map((chart) => chart.title)).toEqual(['entropy'])
  expect(said(first[1]!)).toContain('training: 1 at step 1')
})

test('small and large figures are short', () => {
  expect([0, 2e-4, 0.1234, 12.345, 65536].map(figure)).toEqual(['0', '2.0e−4', '0.123', '12.3', '65.5k'])
})

test('both kinds stand in one list, the newest first, and can be filtered', () => {
  const job = (id: string, created_at: string, status: string) => ({ id, created_at, status }) as Job
  const run = (id: string, created_at: string, more: object) => ({ id, created_at, status: 'PAUSED', ...more }) as Grpo
  const rows = joined([job('a', '2026-01-01T00:00:00Z', 'RUNNING'), job('b', '2026-01-03T00:00:00Z', 'SUCCEEDED')],
    [run('g', '2026-01-02T00:00:00Z', { held: true }), run('h', '2026-01-04T00:00:00Z', { status: 'SUCCEEDED', candidate: { gate: null } })])
  expect(rows.map((row) => row.id)).toEqual(['h', 'b', 'g', 'a'])
  expect(shown(rows, 'held').map((row) => row.id)).toEqual(['g'])
  expect(shown(rows, 'candidates').map((row) => row.id)).toEqual(['h'])
  expect(shown(rows, 'running').map((row) => row.id)).toEqual(['g', 'a'])
})

test('a failure says why, and so does a hold', () => {
  expect(fromJob({ error: { code: 'diverged', message: 'the loss is not finite' } } as Job).why).toBe('the loss is not finite')
  expect(fromGrpo({ error: null, held: true, held_reason: 'the reward left the anchor' } as Grpo).why).toBe('the reward left the anchor')
})

const lineage: Lineage = {
  id: 'v2',
  nodes: [
    { id: 'v2', type: 'model_version', name: 'second' }, { id: 'r2', type: 'grpo_run', name: 'grpo' }, { id: 'v1', type: 'model_version', name: 'first' },
    { id: 'r1', type: 'fine_tuning_job', name: 'sft' }, { id: 'base', type: 'base_model', name: 'tiny' }, { id: 'ds', type: 'dataset', name: 'data' }, { id: 'c', type: 'certificate', name: 'cert' },
  ],
  edges: [{ from: 'r2', to: 'v2' }, { from: 'v1', to: 'r2' }, { from: 'c', to: 'r2' }, { from: 'r1', to: 'v1' }, { from: 'base', to: 'r1' }, { from: 'ds', to: 'r1' }],
}

test('everything stands after what went into it, and a source just before its use', () => {
  const depth = depths(lineage)
  for (const edge of lineage.edges) expect(depth.get(edge.from)!).toBeLessThan(depth.get(edge.to)!)
  expect(depth.get('c')).toBe(depth.get('r2')! - 1)
  expect(inOrder(lineage).at(-1)!.id).toBe('v2')
})

test.each([1300, 700, 320])('at %i pixels no box covers another, and all are inside', (width) => {
  const { boxes, height } = layout(lineage, width)
  for (const a of boxes) {
    expect(a.x).toBeGreaterThanOrEqual(0)
    expect(a.x + a.width).toBeLessThanOrEqual(width + 0.5)
    expect(a.y + a.height).toBeLessThanOrEqual(height + 0.5)
    for (const b of boxes) {
      if (a !== b) expect(a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y).toBe(true)
    }
  }
})

test('a lineage with a circle is drawn all the same', () => {
  expect(layout({ id: 'a', nodes: [{ id: 'a', type: 'model_version', name: 'a' }], edges: [{ from: 'a', to: 'a' }] }, 600).boxes).toHaveLength(1)
})

test('a job asks for what differs from the defaults, and names what it lacks', () => {
  const form = readState(jobSchema, { model: 'tiny/bigram', dataset: 'ds_1', epochs: '20', rank: '0' })
  expect(lackingJob(form)).toEqual([])
  expect(jobBody(form)).toEqual({ baseModel: 'tiny/bigram', datasetId: 'ds_1', method: 'sft', budgetUsd: 5, hyperparameters: { epochs: 20, loraRank: 0 } })
  expect(lackingJob(readState(jobSchema, { budget: 'x' }))).toEqual(['a base model', 'a dataset', 'a budget'])
})

test('a run asks for its judge, anchor and tools', () => {
  const form = readState(grpoSchema, { model: 'm', dataset: 'ds_1', judge: 'crit_1', anchor: 'crit_2', tools: 'tool_1,tool_2', steps: '40', rewards: '5' })
  expect(grpoBody(form)).toEqual({
    baseModel: 'm', datasetId: 'ds_1', criterionId: 'crit_1', anchorCriterionId: 'crit_2', environmentToolIds: ['tool_1', 'tool_2'], maxSteps: 40, budgetUsd: 20, rewardBudgetUsd: 5,
  })
})

test('the faults of a file are listed line by line', () => {
  expect(lineFaults('line 2: is not UTF-8; line 7: messages: is empty; and perhaps more')).toEqual(['line 2: is not UTF-8', 'line 7: messages: is empty', 'and perhaps more'])
  expect(lineFaults('line 2: says a; b')).toEqual(['line 2: says a; b'])
  expect(lineFaults('the file has no lines')).toEqual([])
})

test('a round says what it proved, and why a next one begins or does not', () => {
  const round = (lower: number, more: Partial<Round>) => ({ status: 'SUCCEEDED', round: 1, rounds: 3, next_round_id: null, stopped_reason: null, improvement: { mean: 0.1, lower, upper: 0.2, n: 40 }, ...more }) as Round
  expect(verdict(round(0.02, { next_round_id: 'raft_2' }))).toMatch(/above zero\. The next round has begun/)
  expect(verdict(round(-0.02, { stopped_reason: 'the improvement is not proven' }))).toMatch(/changed by \+0\.100 \(−0\.020 to \+0\.200\)\. No round follows: the improvement is not proven\./)
  expect(verdict(round(0.02, { round: 3 }))).toContain('the last round that was asked for')
})

test('an adoption names the alias, the share, and a proof where one is chosen', () => {
  expect(adoptBody({ alias: 'support', percent: '10', evalId: '' })).toEqual({ aliasName: 'support', canaryPercent: 10 })
  expect(adoptBody({ alias: 'support', percent: '100', evalId: 'eval_1' })).toEqual({ aliasName: 'support', canaryPercent: 100, evalId: 'eval_1' })
})

test('what proves an adoption compared the model with what the alias stands for', () => {
  expect(incumbent({ target_model: 'a', canary_model: 'b', canary_percent: 50 })).toBe('a')
  expect(incumbent({ target_model: 'a', canary_model: 'b', canary_percent: 100 })).toBe('b')
  const of = (baseline_model: string, candidate_models: string[]) => ({ baseline_model, candidate_models })
  expect(provers([of('a', ['ft/x']), of('b', ['ft/x']), of('a', ['c'])], 'a', 'ft/x')).toEqual([of('a', ['ft/x'])])
})
