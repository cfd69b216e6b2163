import { queryOptions } from '@tanstack/react-query'
import { call } from '../../api/client'
import type { Place } from '../../ui/Place'

export interface Counts { requests: number; errors: number; input_tokens: number; output_tokens: number; cost_usd: number }
export interface Notice { kind: string; subject: string; title: string; detail: string; count?: number; at?: string; link: Place }
export interface SeriesPoint extends Counts { day: string; group: string; rest?: boolean }
export interface Job {
  id: string; kind: string; title: string; status: string; done?: number; total?: number; progress?: { done: number; total: number }
  created_at: string; error?: string | null; link: Place
}
export interface HomeData {
  setup: { steps: { id: string; done: boolean; action: string; link: Place }[]; next: string | null }
  wallet: { balance_usd: number; held_usd: number; free_usd: number; link: Place }
  spend: { today: Counts & { link: Place }; last_7_days: Counts & { link: Place }; series: { points: SeriesPoint[] } }
  alarms: Notice[]
  waiting: Notice[]
  jobs: Job[]
}

export const homeQuery = (workspace: string) => queryOptions({
  queryKey: ['home', workspace],
  queryFn: ({ signal }) => call<HomeData>(workspace, 'GET', '/home', { signal }),
  refetchInterval: (query) => (query.state.data?.jobs.some((job) => ['QUEUED', 'RUNNING'].includes(job.status)) ? 5000 : 60_000),
})

/** What the steps of the setup are called. */
export const stepNames = new Map(Object.entries({
  create_key: 'Make an API key', add_credit: 'Put money into the wallet', send_request: 'Send a request',
  turn_on_logging: 'Turn logging on', make_dataset: 'Freeze a dataset', label: 'Grade some exchanges',
  calibrate_judge: 'Calibrate a judge',
}))

/** What a step asks for, where the page offers it. */
export const stepHints = new Map(Object.entries({
  turn_on_logging: 'one click in Logs, which says what is kept and what never is', make_dataset: 'from what is logged, in Datasets',
  calibrate_judge: 'make a judge, grade what models said, and measure it', add_credit: 'in Wallet',
}))

export const stepName = (id: string): string => stepNames.get(id) ?? id.replaceAll('_', ' ').replace(/^./, (c) => c.toUpperCase())
