// What the server says of review queues, and how it is read. A queue's routes are the dashboard's own.
import { queryOptions } from '@tanstack/react-query'
import { call } from '../../api/client'

export type Verdict = 'pass' | 'fail'
export type SourceKind = 'logs' | 'scan' | 'disagreements' | 'traces' | 'uncertain' | 'ids'

export interface LogFilters { model?: string; tag?: string; segment?: string; finish_reason?: string; start?: string; end?: string }
export interface RunFilters { start?: string; end?: string; min_steps?: number; max_steps?: number; tag?: string; model?: string }

export interface Source {
  kind: SourceKind
  n?: number
  filters?: LogFilters
  runs?: RunFilters
  scan_id?: string
  verdict?: Verdict
  request_ids?: string[]
  trace_ids?: string[]
}

export interface Counts { items: number; open: number; claimed: number; done: number; conflicts: number; expired: number }
export interface MyCounts { waiting: number; claimed: number; graded: number; skipped: number }
export interface Rubric { name: string; rubric: string; scale: 'binary' | 'graded'; pass_threshold: number }

export interface Queue {
  id: string
  name: string
  criterion_id: string | null
  criterion: Rubric | null
  instructions: string
  graders_per_item: number
  blind: boolean
  lease_minutes: number
  source: Source | null
  created_by: string
  created_at: string
  closed_at: string | null
  fill: { id: string; status: string; added: number; missing: number; error: string | null } | null
  counts: Counts
  mine: MyCounts
  may_grade: boolean
  may_manage: boolean
}

export interface Step { messages: unknown; response: unknown; tools?: unknown }

export interface Grade {
  user_id: string
  verdict: Verdict
  grade: number | null
  critique: string
  unsure: boolean
  label_id: string
  at: string
}

export interface Item {
  id: string
  queue_id: string
  state: 'open' | 'done' | 'expired'
  my_state: 'open' | 'claimed' | 'graded' | 'skipped'
  request_id: string | null
  trace_id: string | null
  reason: string
  judge: { verdict: Verdict; grade: number; critique: string } | null
  steps: Step[]
  digest: string
  claim: { id: string; lease_until: string } | null
  grade: Grade | null
  grades: Grade[]
  conflict: boolean
  assignees: string[]
}

export interface Offer { item: Item | null; done: boolean; mine: MyCounts }

export interface Progress {
  counts: Counts
  mine: MyCounts
  graders: { user_id: string; email: string; graded: number; skipped: number; unsure: number }[]
  pass: number | null
  fail: number | null
  needed: { measured: { pass: number; fail: number }; calibrated: { pass: number; fail: number } } | null
  estimated_calibration_usd: number | null
}

export interface Agreement {
  items: number
  graders: number
  pairs: number
  percent: number | null
  alpha: number | null
  alpha_ci: [number, number] | null
}

export interface Reviewer { user_id: string; email: string; graded: number; skipped: number; created_at: string; url?: string | null }
export interface Listed<T> { data: T[]; has_more: boolean }

const isFilling = (queue: Queue | undefined) => ['QUEUED', 'RUNNING'].includes(queue?.fill?.status ?? '')

/** The queues: of members all of them, of reviewers those that were opened to them. */
export const queuesQuery = (ws: string, isMember: boolean, closed = false) => queryOptions({
  queryKey: ['queues', ws, isMember, closed],
  queryFn: ({ signal }) => call<Listed<Queue>>(ws, 'GET', isMember ? '/queues' : '/my/queues', {
    query: isMember ? { closed, limit: 200 } : { limit: 200 }, signal,
  }),
  refetchInterval: (query) => (query.state.data?.data.some(isFilling) ? 2000 : false),
})

export const queueQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['queue', ws, id],
  queryFn: ({ signal }) => call<Queue>(ws, 'GET', `/queues/${id}`, { signal }),
  refetchInterval: (query) => (isFilling(query.state.data) ? 1500 : false),
})

export const progressQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['queue', ws, id, 'progress'],
  queryFn: ({ signal }) => call<Progress>(ws, 'GET', `/queues/${id}/progress`, { signal }),
})

export const agreementQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['queue', ws, id, 'agreement'],
  queryFn: ({ signal }) => call<Agreement>(ws, 'GET', `/queues/${id}/agreement`, { signal }),
})
