import clsx from 'clsx'
import type { ReactNode } from 'react'

const tones = {
  neutral: 'bg-raised text-soft',
  accent: 'bg-accent-ground text-accent',
  pass: 'bg-pass-ground text-pass',
  fail: 'bg-fail-ground text-fail',
  warn: 'bg-warn-ground text-warn',
  info: 'bg-info-ground text-info',
}

export type Tone = keyof typeof tones

/** A word about a state. The word says it; the colour only repeats it. */
export function Badge({ tone = 'neutral', children, title }: { tone?: Tone; children: ReactNode; title?: string }) {
  return (
    <span title={title} className={clsx('inline-flex h-5 max-w-full items-center rounded px-1.5 text-xs font-medium whitespace-nowrap', tones[tone])}>
      {children}
    </span>
  )
}

// Every state that the API names, and its tone. One that is not listed is neutral.
const states = new Map<string, Tone>(Object.entries({
  QUEUED: 'neutral', RUNNING: 'info', DONE: 'pass', FAILED: 'fail', CANCELLED: 'neutral',
  PENDING: 'neutral', STARTING: 'info', STOPPING: 'neutral', VALIDATING: 'info', PAUSED: 'warn', SUCCEEDED: 'pass', READY: 'pass',
  ACTIVE: 'info', STOPPED: 'neutral', OVERBUDGET: 'warn', COMPLETED: 'pass', HELD: 'fail',
  pass: 'pass', fail: 'fail', none: 'neutral', provisional: 'neutral', measured: 'info', calibrated: 'accent',
  certified: 'pass', voided: 'fail', open: 'neutral', claimed: 'info', graded: 'pass', skipped: 'neutral',
  conflict: 'warn', paid: 'pass', pending: 'info', refunded: 'warn', disputed: 'fail', promote: 'pass', hold: 'warn',
  rollback: 'fail', delivered: 'pass', owner: 'accent', admin: 'info', member: 'neutral', error: 'fail', ok: 'pass',
} satisfies Record<string, Tone>))

export const toneOf = (state: string): Tone => states.get(state) ?? 'neutral'

/** A status, verdict, trust tier or role as the API says it. */
export const Status = ({ value }: { value: string }) => (
  <Badge tone={toneOf(value)}>{value.length > 2 ? value.toLowerCase().replaceAll('_', ' ') : value}</Badge>
)
