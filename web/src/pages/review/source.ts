// What a queue is made from, in words, and how many items it would have.
import { count, plural } from '../../format'
import type { Source, SourceKind } from './api'

export const kinds: { value: SourceKind; label: string; needsJudge?: boolean }[] = [
  { value: 'logs', label: 'A sample of logs' },
  { value: 'traces', label: 'A sample of whole runs' },
  { value: 'disagreements', label: 'Where judge and people disagree', needsJudge: true },
  { value: 'scan', label: 'What a scan has judged', needsJudge: true },
  { value: 'uncertain', label: 'What the judge was least sure of', needsJudge: true },
  { value: 'ids', label: 'Chosen requests or runs' },
]

/** The ids that stand in a text, one after another. What begins with "trace" or is no request id is a run. */
export function readIds(text: string): { request_ids?: string[]; trace_ids?: string[] } {
  const ids = [...new Set(text.split(/[\s,;]+/).filter(Boolean))]
  const requests = ids.filter((id) => id.startsWith('req_'))
  const traces = ids.filter((id) => !id.startsWith('req_'))
  return { ...(requests.length && { request_ids: requests }), ...(traces.length && { trace_ids: traces }) }
}

/** A source as the API takes it: what does not belong to its kind is left out. */
export function cleanSource(source: Source): Source {
  const { kind, n } = source
  const filters = without(source.filters)
  const runs = without(source.runs)
  switch (kind) {
    case 'logs': return { kind, n, ...(filters && { filters }) }
    case 'traces': return { kind, n, ...(runs && { runs }) }
    case 'scan': return { kind, n, scan_id: source.scan_id, ...(source.verdict && { verdict: source.verdict }) }
    case 'uncertain': return { kind, n, ...(source.scan_id && { scan_id: source.scan_id }) }
    case 'ids': return { kind, ...(source.request_ids && { request_ids: source.request_ids }), ...(source.trace_ids && { trace_ids: source.trace_ids }) }
    default: return { kind, n }
  }
}

function without<T extends object>(filters: T | undefined): T | undefined {
  const pairs = Object.entries(filters ?? {}).filter(([, value]) => value !== undefined && value !== '')
  return pairs.length ? (Object.fromEntries(pairs) as T) : undefined
}

export function describeSource(source: Source | null): string {
  if (!source) return '–'
  const kind = kinds.find((one) => one.value === source.kind)?.label ?? source.kind
  const filters = Object.entries({ ...source.filters, ...source.runs, ...(source.scan_id && { scan: source.scan_id }), ...(source.verdict && { verdict: source.verdict }) })
  return [kind, source.n ? `at most ${count(source.n)}` : '', ...filters.map(([name, value]) => `${name.replaceAll('_', ' ')} ${String(value)}`)].filter(Boolean).join(' · ')
}

/** How many items there would be, of how many that match. `matching` is unknown while it is read. */
export function describePreview(source: Source, matching: number | null | undefined): string {
  const most = source.n ?? 100
  if (source.kind === 'ids') {
    const named = (source.request_ids?.length ?? 0) + (source.trace_ids?.length ?? 0)
    return named === 0 ? 'Name at least one request or run.' : `${plural(named, 'item')}, less what is not logged any more.`
  }
  if (matching === undefined) return 'Counting…'
  if (matching === null) return `At most ${plural(most, 'item')}.`
  if (matching === 0) return 'Nothing matches: the queue would be empty.'
  return matching <= most ? `All ${count(matching)} that match.` : `${count(most)} of ${count(matching)} that match.`
}
