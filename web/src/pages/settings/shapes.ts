// What the settings routes of the dashboard answer.
import type { Actor } from '../../audit'

export interface List<T> { object: 'list'; data: T[]; has_more: boolean }

export type Role = 'owner' | 'admin' | 'member'

export interface Member { user_id: string; email: string; role: Role; created_at: string; updated_at: string }

export interface Invitation { id: string; email: string; role: Role; created_at: string; expires_at: string; url?: string }

export interface Limits {
  requests_per_minute: number
  tokens_per_minute: number
  concurrency: number
  budget_day_usd: number
  budget_month_usd: number
  models: string[]
  scope: 'full' | 'inference'
  expires_at: string | null
  allowed_addresses: string[]
}

export interface Key extends Limits {
  id: string
  name: string
  user_id: string
  email: string
  hint: string
  created_at: string
  last_used_at: string | null
  revoked_at: string | null
}

export interface Settings { default_max_tokens: number; cache: boolean; log_retention_days: number }

export interface EvidencePolicy {
  required: boolean
  max_age_days: number
  min_trust: 'provisional' | 'measured' | 'calibrated' | 'certified'
  max_regression: number
  confidence: number
  max_unproven_canary_percent: number
}

export interface Quota { kind: string; quota: number; stored: number }

export interface DashSession {
  id: string
  method: 'link' | 'password' | 'oidc'
  address: string
  user_agent: string
  created_at: string
  last_seen_at: string
  expires_at: string
  current: boolean
}

export interface AuditEntry {
  id: string
  at: string
  actor: Actor
  request_id: string
  action: string
  subject: string
  before: unknown
  after: unknown
}

export interface Channel {
  id: string
  type: 'email' | 'webhook'
  address: string
  kinds: string[]
  enabled: boolean
  failing_since: string | null
  disabled_reason?: string
  created_at: string
  secret?: string
}

export interface Delivery {
  id: string
  notice_id: string
  kind: string
  state: 'pending' | 'delivered' | 'failed'
  attempts: number
  next_attempt_at: string | null
  last_error?: string
  created_at: string
  ended_at: string | null
}

export interface Notifications { wallet_low_usd: number; email: boolean; kinds: { kind: string; when: string }[] }

export interface Notice { id: string; kind: string; subject: string; title: string; text: string; link: string; at: string }
