// Fine-tuning jobs and GRPO runs as rows of one list.
import type { Grpo, Job } from './api'

export interface Row {
  id: string
  kind: 'job' | 'grpo'
  status: string
  method: string
  baseModel: string
  /** What it made, once it has made it. */
  versionId: string | null
  step: number
  totalSteps: number // 0 until it is known
  progress: number // 0 to 1
  tokens: number
  budget: number
  spent: number
  accrued: number
  held: boolean
  /** Why it is paused or held, or why it failed. */
  why: string | null
  createdAt: string
  startedAt: string | null
  finishedAt: string | null
  estimatedFinish: string | null
  job?: Job
  grpo?: Grpo
}

const final = ['SUCCEEDED', 'FAILED', 'CANCELLED']
export const isFinal = (status: string): boolean => final.includes(status)

export const fromJob = (job: Job): Row => ({
  id: job.id, kind: 'job', status: job.status, method: job.method, baseModel: job.base_model, versionId: job.model_version_id,
  step: job.step, totalSteps: job.total_steps, progress: job.progress, tokens: job.trained_tokens, budget: job.budget_usd,
  spent: job.spent_usd, accrued: job.accrued_usd, held: false, why: job.error?.message ?? job.paused_reason, createdAt: job.created_at,
  startedAt: job.started_at, finishedAt: job.finished_at, estimatedFinish: job.estimated_finish_at, job,
})

export const fromGrpo = (run: Grpo): Row => ({
  id: run.id, kind: 'grpo', status: run.status, method: 'grpo', baseModel: run.base_model, versionId: run.candidate?.model_version_id ?? null,
  step: run.step, totalSteps: run.max_steps, progress: run.progress, tokens: run.trained_tokens, budget: run.budget_usd,
  spent: run.spent_usd, accrued: run.accrued_usd, held: run.held, why: run.error?.message ?? run.held_reason ?? run.paused_reason,
  createdAt: run.created_at, startedAt: run.started_at, finishedAt: run.finished_at, estimatedFinish: finish(run), grpo: run,
})

/** When a run of a known pace will be done: null unless it runs and has made a step. */
function finish(run: Grpo): string | null {
  if (run.status !== 'RUNNING' || !run.started_at || run.step < 1) return null
  const began = Date.parse(run.started_at)
  return new Date(began + (Date.now() - began) / Math.max(run.progress, 0.01)).toISOString()
}

/** Both kinds, the newest first. */
export const joined = (jobs: Job[], runs: Grpo[]): Row[] =>
  [...jobs.map(fromJob), ...runs.map(fromGrpo)].sort((a, b) => Date.parse(b.createdAt) - Date.parse(a.createdAt))

export const shows = ['', 'running', 'held', 'candidates', 'ended'] as const
export type Show = typeof shows[number]

/** The part of the list that a reader asked for. */
export function shown(rows: Row[], show: Show): Row[] {
  switch (show) {
    case 'running': return rows.filter((row) => !isFinal(row.status))
    case 'held': return rows.filter((row) => row.held)
    case 'candidates': return rows.filter((row) => row.grpo?.candidate && !row.grpo.candidate.gate)
    case 'ended': return rows.filter((row) => isFinal(row.status))
    default: return rows
  }
}

export const methodNames: Record<string, string> = { sft: 'Fine-tuning', dpo: 'Preferences (DPO)', grpo: 'Reinforcement (GRPO)' }

/** What a state means for who waits. */
export function stateWords(row: Row): string {
  switch (row.status) {
    case 'VALIDATING': return 'Its data is being prepared.'
    case 'QUEUED': return row.step > 0 ? 'Waits for a worker, and goes on from its last checkpoint.' : 'Waits for a worker.'
    case 'PAUSED': return row.held ? 'Held by the anchor of its reward session.' : 'Paused. It has a checkpoint, and goes on when it is resumed.'
    default: return ''
  }
}
