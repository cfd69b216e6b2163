// The steps of a run as spans. The log has one row for each request; what happened between two requests is the time of
// the tools that the answer called, or of the caller.
import type { Span } from '../../chart/Waterfall'
import { readMessage, readMessages, type Log } from '../logs/messages'

/** When a step began and ended, in milliseconds. A row's time is that of its request. */
const times = (log: Log): [number, number] => {
  const start = new Date(log.created_at).getTime()
  return [start, start + log.latency_ms]
}

export function spans(steps: Log[]): Span[] {
  const out: Span[] = []
  steps.forEach((log, i) => {
    const [start, end] = times(log)
    const cut = log.finish_reason === 'length' || log.finish_reason === 'content_filter'
    out.push({ id: log.id, name: `${i + 1} · ${log.alias ?? log.model}`, start, end, failed: cut, note: cut ? log.finish_reason : log.cached ? 'cached' : undefined })
    const next = steps[i + 1]
    const until = next ? Math.max(end, times(next)[0]) : end
    readMessage(log.response).calls.forEach((call, n) => {
      out.push({ id: `${log.id}/${n}`, parent: log.id, name: call.name, start: end, end: until, note: next ? 'until the next step' : 'called last' })
    })
  })
  return out
}

/** How many of the first messages of a step were in the step before: they need not be read again. */
export function repeated(step: Log, before: Log | undefined): number {
  if (!before) return 0
  const [now, then] = [readMessages(step.messages), readMessages(before.messages)]
  let same = 0
  while (same < then.length && same < now.length && JSON.stringify(now[same]) === JSON.stringify(then[same])) same++
  return same === then.length ? same : 0
}
