// RAFT rounds: sample, score, train on the winners, measure again.
import { queryOptions } from '@tanstack/react-query'
import { data, v1 } from '../../api/client'
import type { components as Dashboard } from '../../api/dashboard'
import type { components as V1 } from '../../api/v1'
import { oneOf, text, type State } from '../../query'
import { isAmount } from './request'

export type Round = V1['schemas']['RAFTRound']
export type Measure = V1['schemas']['RAFTMeasure']
/** What a round will do and cost. */
export type Plan = Dashboard['schemas']['RAFTPlan']

export const stages = ['sampling', 'scoring', 'training', 'measuring', 'comparing'] as const

export const isOver = (round: Round): boolean => round.status !== 'RUNNING'

export const roundsQuery = (ws: string) => queryOptions({
  queryKey: ['raft-rounds', ws],
  queryFn: async ({ signal }): Promise<Round[]> => (await data(v1(ws).GET('/v1/raft/rounds', { params: { query: { limit: 200 } }, signal }))) ?? [],
  refetchInterval: (query) => (query.state.data?.some((round) => !isOver(round)) ? 3000 : false),
})

export const roundQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['raft-round', ws, id],
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/raft/rounds/{id}', { params: { path: { id } }, signal })),
  refetchInterval: (query) => (query.state.data && !isOver(query.state.data) ? 3000 : false),
})

/** What a round proved, and why a next one begins or does not. */
export function verdict(round: Round): string {
  const gain = round.improvement
  const signed = (x: number) => `${x >= 0 ? '+' : '−'}${Math.abs(x).toFixed(3)}`
  const changed = gain ? `On held-out prompts the reward changed by ${signed(gain.mean)} (${signed(gain.lower)} to ${signed(gain.upper)}). ` : ''
  if (round.stopped_reason) return `${changed}No round follows: ${round.stopped_reason}.`
  const proved = !gain ? '' : `${changed}${gain.lower > 0 ? 'Even the lower bound is above zero. ' : 'The lower bound is not above zero, so a gain is not proved. '}`
  if (!isOver(round)) return `${proved}${round.round < round.rounds ? 'The next round begins from the new model if the lower bound of the gain is above zero.' : 'It is the last round that was asked for.'}`
  if (round.next_round_id) return `${proved}The next round has begun from the new model.`
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
