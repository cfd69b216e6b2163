// The balance over time, from the newest transfers back. Pure, so that it can be tested.
import type { Transfer } from './shapes'

/** The balance after each transfer, the oldest first. The newest has the balance of now. */
export function balances(now: number, newestFirst: Transfer[]): { x: number; y: number }[] {
  const points: { x: number; y: number }[] = []
  let balance = now
  for (const transfer of newestFirst) {
    points.push({ x: new Date(transfer.at).getTime(), y: round(balance) })
    balance -= transfer.amount_usd
  }
  const oldest = newestFirst[newestFirst.length - 1]
  if (oldest) points.push({ x: new Date(oldest.at).getTime() - 1, y: round(balance) })
  return points.reverse()
}

const round = (usd: number) => Math.round(usd * 1e9) / 1e9

/** The days from one to another, both included: YYYY-MM-DD, in UTC. At most two years. */
export function daysBetween(from: string, to: string): string[] {
  const days: string[] = []
  for (let t = Date.parse(`${from}T00:00:00Z`); t <= Date.parse(`${to}T00:00:00Z`) && days.length < 732; t += 86_400_000) {
    days.push(new Date(t).toISOString().slice(0, 10))
  }
  return days
}

/** The first moment after a day, in UTC: the end of a range that has the day. */
export const dayAfter = (day: string): string => new Date(Date.parse(`${day}T00:00:00Z`) + 86_400_000).toISOString()

/** The page of what holds money. */
export function holdLink(hold: { id: string; kind: string }): string | undefined {
  const places: [RegExp, string][] = [[/^rs_/, 'rewards/'], [/^eval_/, 'evals/'], [/^crit_/, 'judges/'], [/^dep_/, 'training/endpoints/']]
  const found = places.find(([pattern]) => pattern.test(hold.id))
  return found && found[1] + hold.id.split('.')[0] // an endpoint has one hold after another, with numbers
}

/** How long the money lasts at the pace of some days; nothing when nothing was spent. */
export function lasts(freeUsd: number, spentUsd: number, days: number): number | undefined {
  return spentUsd > 0 ? (freeUsd / spentUsd) * days : undefined
}
