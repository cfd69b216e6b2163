import { expect, test } from 'vitest'
import { ApiError, refusal } from '../../api/errors'
import { clean } from './EditAlias'
import { autoText, missing, previousTarget, toPut, unprovenOf, windowLeft, type Alias, type Gate } from './gate'
import { evalQuery } from './Proof'

const arm = (model: string, n: number) => ({
  model, n, passes: n, rate: 1, ci: [0.5, 1], cost_usd: 0, errors: 0, left: 0, missing: 0, repeated: 0, latency_ms: { p50: 1, p95: 2 },
})
const gate: Gate = {
  arms: [arm('a', 60), arm('b', 12)], certificate_id: 'cert_1', difference: 0, difference_ci: [-0.1, 0.1], epoch: 'epoch_1', evaluated_at: null,
  evidence: { needed: 3.22, promote: 1.5, roll_back: -2 }, mode: 'auto', reason: '', spent_usd: 0, started_at: '2026-01-01T00:00:00Z', verdict: 'collecting',
}
const alias: Alias = {
  object: 'alias', name: 'support', target_model: 'a', canary_model: 'b', canary_percent: 10, description: '', fallback_models: [],
  created_at: '', updated_at: '', gate_criterion_id: 'crit_1', gate_mode: 'auto', gate_min_samples: 50, gate_rollback_threshold: 0.05,
  gate_window_hours: 2, gate_sample_percent: 100, gate_max_cost_usd: 10,
}
const now = Date.parse('2026-01-01T01:00:00Z')

test('what is missing for a verdict names the samples, the evidence and the window', () => {
  const list = missing(alias, gate, now)
  expect(list).toHaveLength(3)
  expect(list[0]).toContain('b has 12 samples of the 50')
  expect(list[1]).toContain('to promote, is 1.50 of the 3.22')
  expect(windowLeft(alias, gate, now)).toBe(3_600_000)
})

test('auto that may not act says why', () => {
  expect(autoText(alias, { ...gate, verdict: 'promote' })).toContain('It makes the canary the target')
  const voided = autoText(alias, { ...gate, verdict: 'promote', mode: 'recommend' })
  expect(voided).toContain('In auto it would')
  expect(voided).toContain('certificate does not allow')
  expect(autoText({ ...alias, gate_mode: 'recommend' }, { ...gate, verdict: 'roll_back', mode: 'recommend' })).not.toContain('certificate')
})

test('a put has the whole alias, and no field of a gate without a judge', () => {
  expect(toPut(alias)).toMatchObject({ name: 'support', gate_min_samples: 50, canary_percent: 10 })
  expect(Object.keys(toPut({ ...alias, gate_criterion_id: '' })).filter((name) => name.startsWith('gate_'))).toEqual([])
  expect(clean({ name: 'x', target_model: 'a', gate_criterion_id: '', gate_mode: 'auto' })).toEqual({ name: 'x', target_model: 'a' })
})

test('the target before is the one that this target replaced', () => {
  const history = [
    { before: { target_model: 'a', canary_percent: 0 }, after: { target_model: 'a', canary_percent: 10 } },
    { before: { target_model: 'old' }, after: { target_model: 'a' } }, { before: null, after: { target_model: 'old' } },
  ]
  expect(previousTarget(alias, history)).toBe('old')
  expect(previousTarget(alias, [history[2]!])).toBeUndefined()
})

test('a refusal keeps what would prove it, and it fills the form of an eval', () => {
  const requests = [{ method: 'POST', path: '/v1/evals', body: { name: 'support', criterion_id: 'crit_1', baseline_model: 'a', candidate_models: ['b'], sample_count: 900 } }]
  const body = { error: { message: 'no', code: 'precondition_failed' }, incumbent_model: 'a', unproven: [{ field: 'target_model', model: 'b', why: 'a new target', evals_started: 0, newest_eval: null, requests }] }
  const error = refusal(new Response(null, { status: 412 }), body)
  expect(error).toBeInstanceOf(ApiError)
  expect(evalQuery(unprovenOf(error.body)!.unproven[0]!.requests[0]!.body)).toEqual({
    new: 'true', name: 'support', baseline: 'a', candidates: 'b', criterion: 'crit_1', count: '900',
  })
  expect(unprovenOf({ error: {} })).toBeUndefined()
})
