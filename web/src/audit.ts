// Entries of the audit trail: who did it, and what it changed.
export interface Actor { kind: string; user_id?: string; key_id?: string; session_id?: string }

/** Who did it, in a few characters: a person, a key, the operator, a gate. */
export function actorText({ kind, user_id: user, key_id: key }: Actor, people?: ReadonlyMap<string, string>): string {
  const who = user ? people?.get(user) ?? user : ''
  if (key) return [who, `key ${key}`].filter(Boolean).join(' · ')
  return who || kind
}

export interface Difference { name: string; before: string; after: string }

const shown = (value: unknown): string => value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value)

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value)

const isNothing = (value: unknown) => value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0)

/** The members that differ, at the top level and one below it. */
export function changes(before: unknown, after: unknown, prefix = ''): Difference[] {
  if (!isObject(before) && !isObject(after)) {
    return shown(before) === shown(after) ? [] : [{ name: prefix || 'value', before: shown(before), after: shown(after) }]
  }
  const [a, b] = [new Map(Object.entries(isObject(before) ? before : {})), new Map(Object.entries(isObject(after) ? after : {}))]
  const names = [...new Set([...a.keys(), ...b.keys()])].filter((name) => !['updated_at', 'created_at', 'object'].includes(name))
  return names.flatMap((name) => {
    const [x, y] = [a.get(name), b.get(name)]
    if (JSON.stringify(x) === JSON.stringify(y) || (isNothing(x) && isNothing(y))) return []
    if (!prefix && isObject(x) && isObject(y)) return changes(x, y, `${name}.`)
    return [{ name: prefix + name, before: shown(x), after: shown(y) }]
  })
}
