// The deploy gate of an eval: its query, its URL, its command.
import type { components } from '../../api/v1'

export type Eval = components['schemas']['Eval']
export type Gate = components['schemas']['Gate']

export interface GateState {
  candidate: string
  min_win_rate: string
  min_pass_rate: string
  max_regression: string
  max_cost_ratio: string
  max_latency_ratio: string
  require_trust: string
  confidence: string
}

type Name = keyof GateState

/** Which checks a run can answer, with a first value and what they ask. */
export const checks: { name: Name; label: string; about: string; kind?: Eval['kind']; example: string }[] = [
  { name: 'min_win_rate', label: 'Win rate at least', about: 'a tie counts half', kind: 'comparison', example: '0.5' },
  { name: 'min_pass_rate', label: 'Pass rate at least', about: 'the true one, where the certificate allows it', kind: 'criterion', example: '0.9' },
  { name: 'max_regression', label: 'Pass rate at most this much lower', about: '0.05 is five points', kind: 'criterion', example: '0.05' },
  { name: 'max_cost_ratio', label: 'Cost at most × the baseline’s', about: 'of all answers', example: '1.2' },
  { name: 'max_latency_ratio', label: 'Latency at most × the baseline’s', about: 'in the median case', example: '1.5' },
  { name: 'require_trust', label: 'The judge’s tier at least', about: 'as it is now', kind: 'criterion', example: 'measured' },
]

export const checksOf = (run: Eval) => checks.filter((check) => check.kind === undefined || check.kind === run.kind)

/** What is asked: the checks that are set and that the run can answer. */
export function gateQuery(run: Eval, state: GateState): Record<string, string> {
  const query: Record<string, string> = {}
  if (run.candidate_models.length > 1) query.candidate = state.candidate || run.candidate_models[0]!
  for (const { name } of checksOf(run)) if (state[name]) query[name] = state[name]
  if (state.confidence && state.confidence !== '0.95') query.confidence = state.confidence
  return query
}

/** What a run is asked first: that quality does not fall. */
export const firstChecks = (run: Eval): Partial<GateState> =>
  run.kind === 'comparison' ? { min_win_rate: '0.5' } : { max_regression: '0.05', require_trust: 'measured' }

export const gatePath = (run: Eval, query: Record<string, string>): string => {
  const text = new URLSearchParams(query).toString()
  return `/v1/evals/${run.id}/gate${text && `?${text}`}`
}

/** The command for a pipeline: it waits for the run, prints the checks, and exits with 0, 1 or 2. */
export function gateCommand(run: Eval, query: Record<string, string>, origin = location.origin): string {
  const flags = Object.entries(query).map(([name, value]) => `--${name.replaceAll('_', '-')} ${/^[\w.\-/]+$/.test(value) ? value : `'${value}'`}`)
  return [`sovereign gate ${run.id} --url ${origin}`, ...flags].join(' \\\n  ')
}

/** A job for GitHub Actions. */
export const gateAction = (command: string): string => `- name: deploy gate
  env:
    SOVEREIGN_API_KEY: \${{ secrets.SOVEREIGN_API_KEY }}
  run: |
    ${command.replaceAll('\n', '\n    ')}
`
