// What endpoints are, in words and numbers. Pure, so that it can be tested.
import { duration } from '../../format'
import { text, type State } from '../../query'
import type { Body, Endpoint, Engine } from './api'

/** Whether it may be started: nothing of it runs, or is about to. */
export const isStopped = (one: Endpoint): boolean => one.status === 'STOPPED' || one.status === 'FAILED'

/** Whether its state changes by itself. */
export const isMoving = (one: Endpoint): boolean => ['PENDING', 'STARTING', 'STOPPING'].includes(one.status)

/** Whether it has an engine no more, because nobody calls it. */
export const isAsleep = (one: Endpoint): boolean => one.status === 'RUNNING' && one.replicas === 0

/** What a state means for who waits or calls. */
export function stateWords(one: Endpoint): string {
  const code = one.error?.code
  switch (one.status) {
    case 'PENDING': return code === 'engine_waits' ? 'No engine can be started now; it is tried further.' : 'An engine is asked for.'
    case 'STARTING': return code === 'engine_waits' ? 'No engine can be started now; it is tried further.' : 'Its engine loads the model. Requests wait for it.'
    case 'RUNNING':
      if (one.replicas > 0) return 'It answers.'
      return code ? 'Its engine has ended, and another is started.' : 'Nobody calls it: it has no engine, and costs nothing. The next request wakes it.'
    case 'STOPPING': return 'It answers what it was asked, for a minute at most, and ends.'
    case 'STOPPED': return code === 'insufficient_balance' ? 'The wallet could not pay for it any longer.' : 'It costs nothing. Its model id stays its own.'
    case 'FAILED': return 'Its engines ended again and again. It costs nothing.'
  }
}

/** The state in two words, for a list. */
export function stateNote(one: Endpoint): string {
  if (isAsleep(one)) return one.error ? 'restarting' : 'idle'
  if (one.error?.code === 'insufficient_balance') return 'no money'
  return one.error?.code === 'engine_waits' ? 'no engine free' : ''
}

/** How many replicas are ready, of how few and how many there may be. */
export const replicasText = (one: Endpoint): string =>
  `${one.replicas} of ${one.min_replicas === one.max_replicas ? one.max_replicas : `${one.min_replicas}–${one.max_replicas}`}`

/** What an hour costs with all replicas; more is never spent in an hour. */
export const mostHourly = (one: Endpoint): number => round(one.hourly_usd * one.max_replicas)

const round = (usd: number) => Math.round(usd * 1e9) / 1e9

/** The present price of an hour of all replicas: what a start sets aside. What it was, where no engine says. */
export function startPrice(one: Endpoint, engines: Engine[]): number {
  const gpu = engines.filter((engine) => serves(engine, one.base_model)).flatMap((engine) => engine.gpu_types).find((type) => type.gpu_type === one.gpu_type)
  return gpu ? round(gpu.hourly_usd * one.gpu_count * one.max_replicas) : mostHourly(one)
}

/** Whether an engine serves a base model. A star stands for any text without a slash. */
export const serves = (engine: Engine, baseModel: string): boolean => engine.base_models.some((pattern) => matches(pattern, baseModel))

export function matches(pattern: string, id: string): boolean {
  const escaped = pattern.replaceAll(/[.+^${}()|\\]/g, '\\$&').replaceAll('*', '[^/]*').replaceAll('?', '[^/]')
  try {
    return new RegExp(`^${escaped}$`).test(id)
  } catch { // an open bracket
    return pattern === id
  }
}

const isPattern = (id: string) => /[*?[\\]/.test(id)

/** The base models that can be chosen: those that engines name, and of the known ones those that fit a pattern. */
export function baseModels(engines: Engine[], known: string[]): string[] {
  const named = engines.flatMap((engine) => engine.base_models).filter((id) => !isPattern(id))
  return [...new Set([...named, ...known.filter((id) => engines.some((engine) => serves(engine, id)))])].sort()
}

/** The patterns of engines: a model that fits one can be named although nobody lists it. */
export const patterns = (engines: Engine[]): string[] => [...new Set(engines.flatMap((engine) => engine.base_models).filter(isPattern))]

export const schema = {
  name: text(), model: text(), other: text(), gpu: text(), gpus: text('1'), min: text('0'), max: text('1'), idle: text('300'), most: text(),
}
export type Form = State<typeof schema>

/** In the place of a model: the reader types one that fits a pattern. */
export const otherModel = 'other'

const whole = (value: string, least: number, most: number): boolean => /^\d+$/.test(value) && Number(value) >= least && Number(value) <= most

/** What is wrong with a field, by its name. */
export function faults(form: Form): Partial<Record<keyof Form, string>> {
  const found: Partial<Record<keyof Form, string>> = {}
  if (!whole(form.gpus, 1, 64)) found.gpus = 'Must be 1 to 64'
  if (!whole(form.min, 0, 64)) found.min = 'Must be 0 to 64'
  if (!whole(form.max, 1, 64)) found.max = 'Must be 1 to 64'
  else if (!found.min && Number(form.min) > Number(form.max)) found.max = 'Must not be below the least'
  if (!whole(form.idle, 1, 604_800)) found.idle = 'Must be 1 second to 7 days'
  if (form.most !== '' && !/^\d+(\.\d{1,9})?$/.test(form.most)) found.most = 'Must be an amount'
  return found
}

/** What is still to be filled in. */
export function lacking(form: Form): string[] {
  const missing: string[] = []
  if (!form.name.trim()) missing.push('a name')
  if (!form.model || (form.model === otherModel && !form.other)) missing.push('a model')
  return missing
}

export interface Cost { hourly: number; most: number }

/** What an hour costs, of one replica and of all; nothing where no engine serves the model on such a GPU. */
export function cost(form: Form, baseModel: string, engines: Engine[]): Cost | undefined {
  const fit = engines.filter((engine) => serves(engine, baseModel)).flatMap((engine) => engine.gpu_types)
  const gpu = form.gpu ? fit.find((type) => type.gpu_type === form.gpu) : fit[0]
  if (!gpu || Object.keys(faults(form)).length > 0) return undefined
  const hourly = round(gpu.hourly_usd * Number(form.gpus))
  return { hourly, most: round(hourly * Number(form.max)) }
}

export function body(form: Form): Body {
  const version = form.model.startsWith('mv_')
  return {
    name: form.name.trim(),
    ...(version ? { modelVersionId: form.model } : { baseModel: form.model === otherModel ? form.other : form.model }),
    ...(form.gpu && { gpuType: form.gpu }), ...(form.gpus !== '1' && { gpuCount: Number(form.gpus) }),
    ...(form.min !== '0' && { minReplicas: Number(form.min) }), ...(form.max !== '1' && { maxReplicas: Number(form.max) }),
    ...(form.idle !== '300' && { idleTimeoutSeconds: Number(form.idle) }), ...(form.most !== '' && { maxHourlyUsd: Number(form.most) }),
  } as Body // the others have defaults
}

/** A number of seconds as people say it. */
export const seconds = (n: number): string => duration(n * 1000).replace(/\.0+ s$/, ' s').replace(/ 0 (s|min|h)$/, '')

/** How programs call an endpoint. */
export function snippets(model: string, origin: string): { id: string; label: string; text: string }[] {
  return [
    {
      id: 'curl', label: 'curl', text: `curl ${origin}/v1/chat/completions \\
  -H "Authorization: Bearer $SOVEREIGN_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"model":"${model}","messages":[{"role":"user","content":"Hello"}]}'`,
    },
    {
      id: 'python', label: 'Python', text: `import os
from openai import OpenAI

client = OpenAI(base_url="${origin}/v1", api_key=os.environ["SOVEREIGN_API_KEY"])
answer = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello"}],
)
print(answer.choices[0].message.content)`,
    },
  ]
}
