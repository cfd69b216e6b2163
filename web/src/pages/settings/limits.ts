// The limits of a key or a workspace, as they stand in a form and as they are sent.
import type { Limits } from './shapes'

export interface LimitsForm {
  requests_per_minute: string
  tokens_per_minute: string
  concurrency: string
  budget_day_usd: string
  budget_month_usd: string
  models: string
  scope: 'full' | 'inference'
  expires_at: string
  allowed_addresses: string
}

export const noLimits: LimitsForm = {
  requests_per_minute: '', tokens_per_minute: '', concurrency: '', budget_day_usd: '', budget_month_usd: '', models: '',
  scope: 'full', expires_at: '', allowed_addresses: '',
}

export const numbers = ['requests_per_minute', 'tokens_per_minute', 'concurrency', 'budget_day_usd', 'budget_month_usd'] as const

const pad = (n: number) => String(n).padStart(2, '0')

/** A time as the control for local times has it. */
export function localTime(iso: string | null): string {
  if (!iso) return ''
  const t = new Date(iso)
  return `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())}T${pad(t.getHours())}:${pad(t.getMinutes())}`
}

export function toForm(limits: Limits): LimitsForm {
  const form = { ...noLimits, scope: limits.scope, expires_at: localTime(limits.expires_at) }
  for (const name of numbers) form[name] = limits[name] ? String(limits[name]) : ''
  form.models = (limits.models ?? []).join('\n')
  form.allowed_addresses = (limits.allowed_addresses ?? []).join('\n')
  return form
}

const names = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean)

/** Which field cannot be read, and why. */
export function checkLimits(form: LimitsForm): Partial<Record<keyof LimitsForm, string>> {
  const wrong: Partial<Record<keyof LimitsForm, string>> = {}
  for (const name of numbers) {
    const isMoney = name.endsWith('usd')
    if (form[name] !== '' && !(isMoney ? /^\d+(\.\d{1,9})?$/ : /^\d+$/).test(form[name])) {
      wrong[name] = isMoney ? 'Must be an amount, such as 25 or 2.50' : 'Must be a whole number'
    }
  }
  return wrong
}

/** What is sent: only what differs. */
export function toChange(form: LimitsForm, before: LimitsForm = noLimits): Record<string, unknown> {
  const change: Record<string, unknown> = {}
  for (const name of numbers) if (form[name] !== before[name]) change[name] = Number(form[name] || 0)
  for (const name of ['models', 'allowed_addresses'] as const) {
    if (form[name] !== before[name]) change[name] = names(form[name])
  }
  if (form.scope !== before.scope) change.scope = form.scope
  if (form.expires_at !== before.expires_at) change.expires_at = form.expires_at ? new Date(form.expires_at).toISOString() : ''
  return change
}

/** The limits in a few words; nothing when there are none. */
export function limitsText(limits: Limits): string {
  const parts: string[] = []
  if (limits.scope === 'inference') parts.push('inference only')
  if (limits.requests_per_minute) parts.push(`${limits.requests_per_minute} requests/min`)
  if (limits.tokens_per_minute) parts.push(`${limits.tokens_per_minute} tokens/min`)
  if (limits.concurrency) parts.push(`${limits.concurrency} at once`)
  if (limits.budget_day_usd) parts.push(`$${limits.budget_day_usd} a day`)
  if (limits.budget_month_usd) parts.push(`$${limits.budget_month_usd} a month`)
  if (limits.models?.length) parts.push(limits.models.length === 1 ? limits.models[0]! : `${limits.models.length} models`)
  if (limits.allowed_addresses?.length) parts.push('from some addresses')
  return parts.join(', ')
}
