// What is ruled on, in order: disagreements first, the surest first; then ties; then a blind sample of agreements.
import type { Report } from './api'

export type Case =
  | { kind: 'disagreement'; label: string; remaining: Report['remaining'][number] }
  | { kind: 'tie'; label: string }
  | { kind: 'blind'; label: string }

/** The cases that wait for a ruling. Those that were left out for now come last, within their kind. */
export function casesOf(report: Report, later: ReadonlySet<string> = new Set()): Case[] {
  const cases: Case[] = [
    ...report.remaining.map((remaining): Case => ({ kind: 'disagreement', label: remaining.label_id, remaining })),
    ...(report.tied ?? []).map((one): Case => ({ kind: 'tie', label: one.label_id })),
    ...report.agreements_to_review.map((one): Case => ({ kind: 'blind', label: one.label_id })),
  ]
  const order = (one: Case) => ['disagreement', 'tie', 'blind'].indexOf(one.kind) * 2 + (later.has(one.label) ? 1 : 0)
  return cases.map((one, i) => ({ one, i })).sort((a, b) => order(a.one) - order(b.one) || a.i - b.i).map(({ one }) => one)
}

export const directionName = (direction: 'fp' | 'fn'): string =>
  direction === 'fp' ? 'the judge passes what people fail' : 'the judge fails what people pass'

/** How sure the judge was of its verdict, 0 to 1. Its grade says how sure it is of a pass. */
export const sureness = (verdict: 'pass' | 'fail', grade: number): number => (verdict === 'pass' ? grade : 1 - grade)
