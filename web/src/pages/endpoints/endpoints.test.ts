import { expect, test } from 'vitest'
import { readState } from '../../query'
import { holdLink } from '../wallet/balance'
import type { Endpoint, Engine } from './api'
import { baseModels, body, cost, faults, isStopped, lacking, matches, replicasText, schema, seconds, snippets, startPrice, stateNote, stateWords } from './endpoint'

const one = (more: Partial<Endpoint>) => ({
  status: 'RUNNING', replicas: 1, min_replicas: 0, max_replicas: 2, gpu_count: 2, gpu_type: 'h200', base_model: 'org/large', hourly_usd: 8, error: null, ...more,
}) as Endpoint
const engines: Engine[] = [
  { name: 'small', base_models: ['tiny/bigram', 'tiny/*'], gpu_types: [{ gpu_type: 'cpu', hourly_usd: 0.1 }] },
  { name: 'vllm', base_models: ['org/*'], gpu_types: [{ gpu_type: 'h200', hourly_usd: 4.5 }, { gpu_type: 'l4', hourly_usd: 1 }] },
]
const form = (more: Record<string, string>) => readState(schema, { name: 'support', model: 'tiny/bigram', ...more })

test('every state says in words whether it answers and costs', () => {
  for (const status of ['PENDING', 'STARTING', 'RUNNING', 'STOPPING', 'STOPPED', 'FAILED'] as const) expect(stateWords(one({ status }))).not.toBe('')
  expect(stateWords(one({ replicas: 0 }))).toMatch(/wakes it/)
  expect(stateNote(one({ replicas: 0 }))).toBe('idle')
  const broke = one({ status: 'STOPPED', error: { code: 'insufficient_balance', message: '', lines: [] } })
  expect([stateNote(broke), isStopped(broke)]).toEqual(['no money', true])
  expect(stateWords(broke)).toMatch(/could not pay/)
})

test('replicas are shown as ready, of the least and the most', () => {
  expect(replicasText(one({}))).toBe('1 of 0–2')
  expect(replicasText(one({ min_replicas: 2 }))).toBe('1 of 2')
})

test('a start costs the present price of all replicas, and the old one where no engine says', () => {
  expect(startPrice(one({}), engines)).toBe(18)
  expect(startPrice(one({}), [])).toBe(16)
})

test('a pattern is matched as the server matches it', () => {
  expect([matches('tiny/*', 'tiny/a.b'), matches('tiny/*', 'tiny/a/b'), matches('a.b', 'axb'), matches('*', 'tiny/a'), matches('[', '[')]).toEqual([true, false, false, false, true])
  expect(baseModels(engines, ['tiny/other', 'foreign/x', 'org/large'])).toEqual(['org/large', 'tiny/bigram', 'tiny/other'])
})

test('what an hour costs is known before the button', () => {
  expect(cost(form({ max: '3' }), 'tiny/bigram', engines)).toEqual({ hourly: 0.1, most: 0.3 })
  expect(cost(form({ gpu: 'l4', gpus: '4' }), 'org/large', engines)).toEqual({ hourly: 4, most: 4 })
  expect(cost(form({ gpu: 'cpu' }), 'org/large', engines)).toBeUndefined()
  expect(cost(form({ max: 'x' }), 'tiny/bigram', engines)).toBeUndefined()
})

test('a request has what differs from the defaults', () => {
  expect(body(form({}))).toEqual({ name: 'support', baseModel: 'tiny/bigram' })
  expect(body(form({ model: 'mv_1', gpu: 'l4', gpus: '2', min: '1', max: '3', idle: '60', most: '12.5' }))).toEqual({
    name: 'support', modelVersionId: 'mv_1', gpuType: 'l4', gpuCount: 2, minReplicas: 1, maxReplicas: 3, idleTimeoutSeconds: 60, maxHourlyUsd: 12.5,
  })
  expect(body(form({ model: 'other', other: 'org/x' }))).toEqual({ name: 'support', baseModel: 'org/x' })
})

test('what is missing or wrong is named', () => {
  expect(lacking(readState(schema, { model: 'other' }))).toEqual(['a name', 'a model'])
  expect(faults(form({ gpus: '0', min: '3', max: '2', idle: '', most: '-1' }))).toEqual({
    gpus: 'Must be 1 to 64', max: 'Must not be below the least', idle: 'Must be 1 second to 7 days', most: 'Must be an amount',
  })
})

test('seconds are said as people say them', () => {
  expect([45, 300, 3600, 604_800, 90].map(seconds)).toEqual(['45 s', '5 min', '1 h', '7 d', '1 min 30 s'])
})

test('the snippets name the model, and the key by its variable', () => {
  for (const { text } of snippets('dedicated/support-x', 'http://127.0.0.1:8080')) expect(text).toMatch(/127\.0\.0\.1:8080\/v1[^]*dedicated\/support-x/)
})

test('a hold of an endpoint leads to the endpoint', () => {
  expect(holdLink({ id: 'dep_01j.12', kind: 'dedicated_endpoint' })).toBe('training/endpoints/dep_01j')
})
