import { sameJson } from './verify'

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value)
const text = (value: unknown): string => (value === undefined || value === null ? '' : typeof value === 'string' ? value : JSON.stringify(value))

/** What differs between two states, member by member. Times and ids that always change are left out. */
export function changes(before: unknown, after: unknown): { name: string; before: string; after: string }[] {
  const [a, b] = [isObject(before) ? before : {}, isObject(after) ? after : {}]
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((name) => !['updated_at', 'created_at', 'object', 'id', 'labels'].includes(name))
  return names.filter((name) => !sameJson(a[name], b[name])).map((name) => ({ name, before: text(a[name]), after: text(b[name]) }))
    .filter((change) => change.before !== change.after)
}
