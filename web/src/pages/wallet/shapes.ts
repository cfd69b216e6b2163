// What the money routes of the dashboard answer. Amounts are dollars, with up to nine digits.

export interface Hold { id: string; kind: string; amount_usd: number; spent_usd: number; left_usd: number }

export interface Wallet {
  free_usd: number
  balance_usd: number
  held_usd: number
  spent_usd: number
  owed_usd: number
  running_usd: number
  abandoned_unpaid_usd: number
  abandoned_allowance_usd: number
  holds: Hold[]
}

export interface Billing { card_payments: boolean; min_usd: number; max_usd: number; owed_usd: number }

export interface Topup {
  id: string
  amount_usd: number
  state: 'pending' | 'processing' | 'paid' | 'failed' | 'expired'
  taken_back_usd: number
  url?: string
  error?: string
  created_by: string
  created_at: string
  paid_at: string | null
}

export interface Transfer {
  id: string
  kind: string
  memo: string
  at: string
  amount_usd: number
  lines: { account: string; amount_usd: number }[]
}

export interface Proof {
  ok: boolean
  entries: number
  sum_usd: number
  accounts: { account: string; balance_usd: number; entries_usd: number }[]
  heads: Record<string, unknown>[]
}

export interface Counts { requests: number; errors: number; input_tokens: number; cached_input_tokens: number; output_tokens: number; cost_usd: number; charged_usd: number }

export interface Series {
  by: string
  from: string
  to: string
  points: (Counts & { day: string; group: string; rest?: boolean })[]
  groups: (Counts & { group: string; rest?: boolean })[]
  totals: Counts
  key_names?: Record<string, string>
}

export interface Month {
  month: string
  from: string
  to: string
  final: boolean
  opening_balance_usd: number
  topups_usd: number
  usage_usd: number
  refunds_usd: number
  closing_balance_usd: number
}

export interface Statement extends Month {
  transfers: { id: string; at: string; kind: string; amount_usd: number; memo: string }[]
  usage: { model: string; key_id: string; others?: number; requests: number; input_tokens: number; output_tokens: number; cost_usd: number; charged_usd: number }[]
}
