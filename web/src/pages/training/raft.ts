// RAFT rounds: sample, score, train on the winners, measure again.
import { queryOptions } from '@tanstack/react-query'
import { data, v1 } from '../../api/client'
import { oneOf, text, type State } from '../../query'
import { isAmount } from './request'

export interface Reward { mean: number; lower: number; upper: number; n: number }
export interface Round {
  id: string; round: number; status: string; stage: string | null; base_model: string; prompt_count: number; samples_per_prompt: number
  accepted: number; rejected_by_reason: Record<string, number> | null; min_grade: number; fine_tuning_job_id: string | null; model_version_id: string | null
  reward_before: Reward | null; reward_after: Reward | null; improvement: { mean: number; lower: number; upper: number } | null
  progress: number | { done: number; total: number }; budget_usd: number; spent_usd: number; error: { code: string; message: string } | null
  next_round_id?: string | null; created_at: string; finished_at: string | null
}

export const stages = ['sampling', 'scoring', 'training', 'measuring'] as const

const isOver = (round: Round) => ['SUCCEEDED', 'FAILED', 'CANCELLED'].includes(round.status)
export { isOver }

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

/** What a round proved, and so whether a next one may begin. */
export function verdict(round: Round): string {
  const gain = round.improvement
  if (!gain) return isOver(round) ? 'It ended before it was measured, so no next round begins.' : 'The reward is measured on held-out prompts before and after.'
  const points = `${gain.mean >= 0 ? '+' : '−'}${Math.abs(gain.mean).toFixed(3)} (${gain.lower.toFixed(3)} to ${gain.upper.toFixed(3)})`
  return gain.lower > 0
    ? `The reward rose by ${points} on held-out prompts: even the lower bound is above zero, so a next round may begin from this model.`
    : `The reward changed by ${points} on held-out prompts: the lower bound is not above zero, so a gain is not proved and no next round begins.`
}

export const raftSchema = {
  model: text(), dataset: text(), judge: text(), prompts: text('100'), samples: text('4'), grade: text('0.5'), rounds: oneOf(['1', '2', '3', '4', '5', '6', '7', '8', '9', '10'], '1'), budget: text('10'),
}
export type RaftForm = State<typeof raftSchema>

export function lackingRaft(form: RaftForm): string[] {
  return [
    ...(form.model ? [] : ['a base model']), ...(form.dataset ? [] : ['a dataset']), ...(form.judge ? [] : ['a judge']), ...(isAmount(form.budget) ? [] : ['a budget']),
  ]
}

export const raftBody = (form: RaftForm) => ({
  baseModel: form.model, datasetId: form.dataset, criterionId: form.judge, promptCount: Number(form.prompts), samplesPerPrompt: Number(form.samples), minGrade: Number(form.grade),
  budgetUsd: Number(form.budget), ...(form.rounds !== '1' && { rounds: Number(form.rounds) }),
})

const reasons: Record<string, string> = {
  below_min_grade: 'below the grade', not_best: 'not the best of its prompt', not_scored: 'not scored', empty: 'empty', duplicate: 'said twice',
}
export const reasonName = (reason: string): string => reasons[reason] ?? reason.replaceAll('_', ' ')
