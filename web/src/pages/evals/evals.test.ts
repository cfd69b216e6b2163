import { expect, test } from 'vitest'
import { readState } from '../../query'
import { parseCases } from './cases'
import { checksOf, firstChecks, gateCommand, gatePath, gateQuery, type Eval, type GateState } from './gate'
import { formSchema, lacking, toBody } from './request'

const run = (kind: Eval['kind'], candidates = ['b']) => ({ id: 'eval_1', kind, candidate_models: candidates }) as unknown as Eval
const none: GateState = {
  candidate: '', min_win_rate: '', min_pass_rate: '', max_regression: '', max_cost_ratio: '', max_latency_ratio: '', require_trust: '', confidence: '0.95',
}

test('a gate asks only what the run can answer', () => {
  const all: GateState = { ...none, min_win_rate: '0.5', max_regression: '0.05', max_cost_ratio: '1.2' }
  expect(gateQuery(run('comparison'), all)).toEqual({ min_win_rate: '0.5', max_cost_ratio: '1.2' })
  expect(gateQuery(run('criterion'), all)).toEqual({ max_regression: '0.05', max_cost_ratio: '1.2' })
  expect(gateQuery(run('criterion', ['b', 'c']), { ...none, confidence: '0.99' })).toEqual({ candidate: 'b', confidence: '0.99' })
  for (const kind of ['comparison', 'criterion'] as const) {
    for (const name of Object.keys(firstChecks(run(kind)))) expect(checksOf(run(kind)).map((check) => check.name)).toContain(name)
  }
})

test('the command of a gate has the flags of its query', () => {
  const query = gateQuery(run('criterion'), { ...none, max_regression: '0.05', require_trust: 'measured' })
  expect(gatePath(run('criterion'), query)).toBe('/v1/evals/eval_1/gate?max_regression=0.05&require_trust=measured')
  expect(gateCommand(run('criterion'), query, 'http://x')).toBe('sovereign gate eval_1 --url http://x \\\n  --max-regression 0.05 \\\n  --require-trust measured')
})

test('cases come from our own lines, from chat examples, and from exports of OpenAI’s evals', () => {
  const { cases, problems } = parseCases([
    '{"id":"a","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}]}',
    '{"input":[{"role":"system","content":"Be brief"},{"role":"user","content":"2+2?"}],"ideal":"4"}',
    '{"item":{"input":"What is a whale?"},"sample":{}}', '', 'not json', '{"score":1}',
  ].join('\n'))
  expect(cases).toEqual([
    { id: 'a', messages: [{ role: 'user', content: 'Hi' }] },
    { messages: [{ role: 'system', content: 'Be brief' }, { role: 'user', content: '2+2?' }] },
    { messages: [{ role: 'user', content: 'What is a whale?' }] },
  ])
  expect(problems).toEqual(['line 5 is not JSON', 'line 6 has no messages, input or prompt'])
})

test('more than a thousand cases are cut, and it is said once', () => {
  const { cases, problems } = parseCases('{"prompt":"x"}\n'.repeat(1010))
  expect(cases).toHaveLength(1000)
  expect(problems).toEqual(['more than 1000 cases: the others are left out'])
})

test('a form that is not whole says what it lacks, and a whole one becomes the request', () => {
  expect(lacking(readState(formSchema, {}), [])).toEqual(['a name', 'a baseline', 'a candidate', 'a judge'])
  const form = readState(formSchema, {
    name: ' x ', baseline: 'a', candidates: 'b,c', criterion: 'crit_1', tag: 'support', count: '50', reuse: 'true', max_cost: '2', parameters: '{"max_tokens":9}',
  })
  expect(lacking(form, [])).toEqual([])
  expect(toBody(form, [])).toEqual({
    name: 'x', baseline_model: 'a', candidate_models: ['b', 'c'], criterion_id: 'crit_1', sample_count: 50, sample_filters: { tag: 'support' },
    reuse_logged_answers: true, max_cost_usd: 2, parameters: { max_tokens: 9 },
  })
  const inline = readState(formSchema, { name: 'x', baseline: 'a', candidates: 'b', kind: 'rubric', rubric: 'r', judge: 'j', source: 'inline', tag: 'support' })
  expect(lacking(inline, [])).toEqual(['cases'])
  expect(toBody(inline, [{ messages: [] }])).toEqual({ name: 'x', baseline_model: 'a', candidate_models: ['b'], rubric: 'r', judge_model: 'j', cases: [{ messages: [] }] })
  expect(lacking(readState(formSchema, { ...form, parameters: '[1]', candidates: 'b' } as never), [])).toEqual(['parameters that are a JSON object'])
})
