// RAFT rounds: sample, score, train on the winners, measure again.
import { queryOptions } from '@tanstack/react-query'
import { data, v1 } from '../../api/client'
import { oneOf, text, type State } from '../../query'
import { isAmount } from './request'

export interface Measure { mean: number; lower: number; upper: number; n: number }
export interface Round {
  id: string; campaign_id: string; round: number; rounds: number; status: string; stage: string; progress: number; base_model: string; parent_id: string | null
  dataset_id: string; criterion_id: string; prompt_count: number; held_out_count: number; samples_per_prompt: number; min_grade: number; seed: number
  accepted: number; rejected_by_reason: Record<string, number> | null; reward_before: Measure | null; reward_after: Measure | null; improvement: Measure | null
  reward_session_id: string; fine_tuning_job_id: string; model_version_id: string | null; next_round_id: string | null; stopped_reason: string | null
  budget_usd: number; spent_usd: number; error: { code: string; message: string } | null; created_at: string; finished_at: string | null
}
/** What a round will do and cost. */
export interface Plan {
  prompt_count: number; held_out_count: number; samples: number; estimated_scoring_usd: number; reward_budget_usd: number; gpu_budget_usd: number; least_budget_usd: number
}

export const stages = ['sampling', 'scoring', 'training', 'measuring', 'comparing'] as const

export const isOver = (round: Round): boolean => round.status !== 'RUNNING'

const get = <T>(ws: string, path: string, signal: AbortSignal) => data(v1(ws).GET(path as never, { signal } as never) as never) as Promise<T>

export const roundsQuery = (ws: string) => queryOptions({
  queryKey: ['raft-rounds', ws],
  queryFn: async ({ signal }) => (await get<Round[] | null>(ws, '/v1/raft/rounds?limit=200', signal)) ?? [],
  refetchInterval: (query) => (query.state.data?.some((round) => !isOver(round)) ? 3000 : false),
})

export const roundQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['raft-round', ws, id],
  queryFn: ({ signal }) => get<Round>(ws, `/v1/raft/rounds/${encodeURIComponent(id)}`, signal),
  refetchInterval: (query) => (query.state.data && !isOver(query.state.data) ? 3000 : false),
})

/** What a round proved, and why a next one begins or does not. */
export function verdict(round: Round): string {
  const gain = round.improvement
  const signed = (x: number) => `${x >= 0 ? '+' : '−'}${Math.abs(x).toFixed(3)}`
  const proved = !gain ? '' : `On held-out prompts the reward changed by ${signed(gain.mean)} (${signed(gain.lower)} to ${signed(gain.upper)}): ${gain.lower > 0
    ? 'even the lower bound is above zero.' : 'the lower bound is not above zero, so a gain is not proved.'} `
  if (!isOver(round)) return `${proved}${round.round < round.rounds ? 'The next round begins from the new model if the lower bound of the gain is above zero.' : 'It is the last round that was asked for.'}`
  if (round.next_round_id) return `${proved}The next round has begun from the new model.`
  if (round.stopped_reason) return `${proved}No round follows: ${round.stopped_reason}`
  return `${proved}${round.round < round.rounds ? 'No round follows.' : 'It was the last round that was asked for.'}`
}

export const raftSchema = {
  model: text(), dataset: text(), judge: text(), prompts: text('0'), samples: text('4'), grade: text('0.7'), rounds: oneOf(['1', '2', '3', '4', '5', '6', '7', '8', '9', '10'], '1'), budget: text('10'),
}
export type RaftForm = State<typeof raftSchema>

export function lackingRaft(form: RaftForm): string[] {
  return [
    ...(form.model ? [] : ['a base model']), ...(form.dataset ? [] : ['a dataset']), ...(form.judge ? [] : ['a judge']), ...(isAmount(form.budget) ? [] : ['a budget']),
  ]
}

export const raftBody = (form: RaftForm) => ({
  baseModel: form.model, datasetId: form.dataset, criterionId: form.judge, ...(Number(form.prompts) > 0 && { promptCount: Number(form.prompts) }), samplesPerPrompt: Number(form.samples), minGrade: Number(form.grade),
  budgetUsd: Number(form.budget), ...(form.rounds !== '1' && { rounds: Number(form.rounds) }),
})

const reasons: Record<string, string> = {
  below_min_grade: 'below the grade', not_best: 'not the best of its prompt', not_scored: 'not scored', empty: 'empty', duplicate: 'said twice',
}
export const reasonName = (reason: string): string => reasons[reason] ?? reason.replaceAll('_', ' ')
