// The form of a new eval, as the query string has it and as it is sent.
import type { components } from '../../api/v1'
import { flag, oneOf, text } from '../../query'
import type { State } from '../../query'
import type { Case } from './cases'

export type NewEvalBody = components['schemas']['NewEval']

/** What fills the form can be a link: an alias's refusal, a dataset, a log filter, an eval to repeat. */
export const formSchema = {
  name: text(), baseline: text(), candidates: text(), kind: oneOf(['criterion', 'rubric'] as const, 'criterion'), criterion: text(), rubric: text(),
  judge: text(), source: oneOf(['logs', 'dataset', 'inline'] as const, 'logs'), dataset: text(), count: text('100'), seed: text(),
  model: text(), tag: text(), segment: text(), start: text(), end: text(), reuse: flag, max_cost: text(), parameters: text(),
}

export type Form = State<typeof formSchema>

export const listOf = (value: string): string[] => value.split(',').map((one) => one.trim()).filter(Boolean)

const isNumber = (value: string) => /^\d+(\.\d+)?$/.test(value)

/** What is still missing, in words. Nothing: it can be sent. */
export function lacking(form: Form, cases: Case[]): string[] {
  const list: string[] = []
  if (!form.name.trim()) list.push('a name')
  if (!form.baseline) list.push('a baseline')
  if (listOf(form.candidates).length === 0) list.push('a candidate')
  if (form.kind === 'criterion' && !form.criterion) list.push('a judge')
  if (form.kind === 'rubric' && (!form.rubric.trim() || !form.judge)) list.push('a rubric and a model that judges')
  if (form.source === 'dataset' && !form.dataset) list.push('a dataset')
  if (form.source === 'inline' && cases.length === 0) list.push('cases')
  if (form.max_cost && !isNumber(form.max_cost)) list.push('an amount as the most that it may cost')
  if (form.count && form.source !== 'inline' && !/^\d+$/.test(form.count)) list.push('a number of cases')
  if (form.parameters.trim() && !parametersOf(form.parameters)) list.push('parameters that are a JSON object')
  return list
}

function parametersOf(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  } catch { /* said by lacking */ }
}

export function toBody(form: Form, cases: Case[]): NewEvalBody {
  const body: NewEvalBody = { name: form.name.trim(), baseline_model: form.baseline, candidate_models: listOf(form.candidates) }
  if (form.kind === 'criterion') body.criterion_id = form.criterion
  else Object.assign(body, { rubric: form.rubric.trim(), judge_model: form.judge })
  if (form.source === 'inline') body.cases = cases as NewEvalBody['cases']
  else if (form.count) body.sample_count = Number(form.count)
  if (form.source === 'dataset') body.dataset_id = form.dataset
  if (form.source === 'logs') {
    const { model, tag, segment, start, end } = form
    const filters = Object.fromEntries(Object.entries({ model, tag, segment, start, end }).filter(([, value]) => value))
    if (Object.keys(filters).length) body.sample_filters = filters
    if (form.reuse) body.reuse_logged_answers = true
  }
  if (form.seed && form.source !== 'inline') body.seed = Number(form.seed)
  if (form.max_cost) body.max_cost_usd = Number(form.max_cost)
  if (form.parameters.trim()) body.parameters = parametersOf(form.parameters) as NewEvalBody['parameters']
  return body
}
