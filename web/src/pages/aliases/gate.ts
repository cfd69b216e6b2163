// What a gate's state means, in sentences. Pure, so that it can be tested.
import type { components } from '../../api/v1'
import { duration, plural } from '../../format'

export type Alias = components['schemas']['Alias']
export type Gate = components['schemas']['GateReport']
export type PutAlias = components['schemas']['PutAlias']

/** The whole alias as PUT wants it: PUT replaces everything, the gate included. */
export function toPut(alias: Alias): PutAlias {
  const put: PutAlias = {
    name: alias.name, target_model: alias.target_model, canary_model: alias.canary_model, canary_percent: alias.canary_percent,
    fallback_models: alias.fallback_models ?? [], description: alias.description,
  }
  if (!alias.gate_criterion_id) return put
  return {
    ...put, gate_criterion_id: alias.gate_criterion_id, gate_mode: alias.gate_mode, gate_min_samples: alias.gate_min_samples,
    gate_rollback_threshold: alias.gate_rollback_threshold, gate_window_hours: alias.gate_window_hours,
    gate_sample_percent: alias.gate_sample_percent, gate_max_cost_usd: alias.gate_max_cost_usd,
  }
}

export const verdictWords: Record<Gate['verdict'], string> = {
  idle: 'idle', collecting: 'collecting', promote: 'promote', roll_back: 'roll back', inconclusive: 'inconclusive', paused: 'paused',
}

/** How much of the window is left, in milliseconds; negative when it is over. */
export function windowLeft(alias: Alias, gate: Gate, now = Date.now()): number | null {
  if (!gate.started_at || !alias.gate_window_hours) return null
  return new Date(gate.started_at).getTime() + alias.gate_window_hours * 3_600_000 - now
}

/** What stands between now and a verdict. */
export function missing(alias: Alias, gate: Gate, now = Date.now()): string[] {
  const list: string[] = []
  const least = alias.gate_min_samples ?? 0
  for (const arm of gate.arms) {
    if (arm.n < least) list.push(`${arm.model} has ${plural(arm.n, 'sample')} of the ${least} that each model needs`)
  }
  const { promote, roll_back: back, needed } = gate.evidence
  const best = Math.max(promote, back)
  if (best < needed) {
    list.push(`the stronger evidence, to ${promote >= back ? 'promote' : 'roll back'}, is ${best.toFixed(2)} of the ${needed.toFixed(2)} that a decision needs`)
  }
  const left = windowLeft(alias, gate, now)
  if (left !== null && left > 0) list.push(`the window ends in ${duration(left)}; without a decision the verdict is then inconclusive`)
  return list
}

/** What the mode auto does now, or would do. */
export function autoText(alias: Alias, gate: Gate): string {
  const setting = alias.gate_mode === 'auto'
  const acts = setting && gate.mode === 'auto'
  const lacks = setting && !acts ? ' It is set to auto, and only recommends: the judge’s certificate does not allow it to act now.' : ''
  switch (gate.verdict) {
    case 'promote':
      return (acts ? 'It makes the canary the target, and ends the split.'
        : `In auto it would make ${alias.canary_model || 'the canary'} the target and end the split; now a person does it.`) + lacks
    case 'roll_back':
      return (acts ? 'It ends the split: the canary gets no more requests.'
        : 'In auto it would end the split; now a person does it.') + lacks
    case 'collecting':
      return `${acts ? 'It does nothing yet, and acts by itself when the evidence suffices.' : 'In auto it would do nothing yet.'}${lacks}`
    case 'paused':
      return `Nothing is decided while it is paused.${lacks}`
    case 'inconclusive':
      return 'It does nothing: the window is over. A longer window goes on where it ended.'
    default:
      return 'It does nothing: the requests are not split.'
  }
}

/** The target before this one, from the newest change of it; nothing if there was none. */
export function previousTarget(alias: Alias, history: { before: unknown; after: unknown }[]): string | undefined {
  for (const { before, after } of history) {
    const [a, b] = [before, after].map((value) => (value as { target_model?: string } | null)?.target_model)
    if (a && b === alias.target_model && a !== b) return a
  }
}

export interface Unproven {
  incumbent_model: string
  previous_model?: string
  unproven: {
    field: string
    model: string
    why: string
    evals_started: number
    newest_eval: { id: string; reason: string } | null
    requests: { method: string; path: string; body?: Record<string, unknown> }[]
  }[]
}

/** What a refusal of the evidence policy says beside its error. */
export const unprovenOf = (body: unknown): Unproven | undefined =>
  Array.isArray((body as Unproven | null)?.unproven) ? (body as Unproven) : undefined
