// The logic of grading, without a page: what was seen in which order, what a step repeats, how long a claim is held.
import type { Item, Step } from './api'

/** The items that a person has seen in a queue, the first first. It is kept for the browser's session. */
export class Trail {
  private ids: string[]

  constructor(private readonly key: string, private readonly store: Pick<Storage, 'getItem' | 'setItem'> | null) {
    this.ids = read(store, key)
  }

  /** Notes an item. One that was seen before keeps its place. */
  see(id: string) {
    if (this.ids.includes(id)) return
    this.ids = [...this.ids, id].slice(-most)
    try {
      this.store?.setItem(this.key, JSON.stringify(this.ids))
    } catch { /* storage is full or off: the trail lasts as long as the page */ }
  }

  before(id: string | undefined): string | undefined {
    const at = id === undefined ? this.ids.length : this.ids.indexOf(id)
    return at > 0 ? this.ids[at - 1] : undefined
  }

  after(id: string | undefined): string | undefined {
    const at = id === undefined ? -1 : this.ids.indexOf(id)
    return at >= 0 ? this.ids[at + 1] : undefined
  }

  get length() {
    return this.ids.length
  }

  place(id: string): number {
    return this.ids.indexOf(id) + 1
  }
}

const most = 2000

function read(store: Pick<Storage, 'getItem'> | null, key: string): string[] {
  try {
    const kept: unknown = JSON.parse(store?.getItem(key) ?? '[]')
    return Array.isArray(kept) ? kept.filter((id): id is string => typeof id === 'string') : []
  } catch {
    return []
  }
}

const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b)

/** How many of a step's messages the step before has shown already, its answer among them. */
export function repeated(before: Step | undefined, step: Step): number {
  if (!before || !Array.isArray(before.messages) || !Array.isArray(step.messages)) return 0
  const shown = [...before.messages, before.response]
  let n = 0
  while (n < shown.length && n < step.messages.length && same(shown[n], step.messages[n])) n++
  // An answer that was sent back with other fields, such as an empty refusal, is the same message.
  if (n === before.messages.length && n < step.messages.length && role(step.messages[n]) === 'assistant') n++
  return n >= before.messages.length ? n : 0
}

const role = (message: unknown): unknown => (typeof message === 'object' && message !== null ? (message as { role?: unknown }).role : undefined)

export type Lease = { state: 'none' } | { state: 'held'; minutes: number; soon: boolean } | { state: 'over' }

/** What is left of a claim. */
export function leaseOf(item: Pick<Item, 'claim'> | null, now: number): Lease {
  if (!item?.claim) return { state: 'none' }
  const left = Date.parse(item.claim.lease_until) - now
  if (!(left > 0)) return { state: 'over' }
  return { state: 'held', minutes: Math.ceil(left / 60_000), soon: left < 2 * 60_000 }
}

/** How far the server's clock is ahead, from a claim that was made or renewed now: reader's clocks are wrong at times. */
export const clockAhead = (leaseUntil: string, leaseMinutes: number, now: number): number =>
  Date.parse(leaseUntil) - leaseMinutes * 60_000 - now

/** How much of a tier's labels is there, by class: what is graded, of what is needed in all. */
export function toTier(have: { pass: number; fail: number }, needed: { pass: number; fail: number }) {
  const one = (has: number, lacks: number) => ({ has, of: has + lacks, lacks })
  return { pass: one(have.pass, needed.pass), fail: one(have.fail, needed.fail), done: needed.pass === 0 && needed.fail === 0 }
}
