// Keyboard shortcuts. A component registers its keys while it is on the page; the list behind `?` is this registry.
import { useEffect, useRef, useSyncExternalStore } from 'react'

export interface Key {
  /** One key as KeyboardEvent.key says it ("j", "Enter", "?"), two in a row ("g l"), or with the command key ("mod+k"). */
  keys: string
  label: string
  run: (event: KeyboardEvent) => void
}

interface Group { name: string; keys: Key[] }

let groups: readonly Group[] = []
const listeners = new Set<() => void>()

function publish(next: readonly Group[]) {
  groups = next
  listeners.forEach((tell) => tell())
}

const subscribe = (tell: () => void) => {
  listeners.add(tell)
  return () => void listeners.delete(tell)
}

/** Every key that works at this moment, by group. */
export function useKeyGroups(): readonly Group[] {
  return useSyncExternalStore(subscribe, () => groups)
}

/** Registers keys while the component is mounted and `on` is true. The newest registration of a key wins. */
export function useKeys(name: string, keys: Key[], on = true) {
  const latest = useRef(keys)
  latest.current = keys
  const shape = keys.map((key) => `${key.keys}\n${key.label}`).join('\n')
  useEffect(() => {
    if (!on) return
    const group: Group = {
      name,
      keys: latest.current.map((key, i) => ({
        keys: key.keys,
        label: key.label,
        run: (event: KeyboardEvent) => latest.current[i]?.run(event),
      })),
    }
    publish([...groups, group])
    return () => publish(groups.filter((other) => other !== group))
  }, [name, shape, on])
}

const isMac = typeof navigator !== 'undefined' && /Mac|iPhone|iPad/.test(navigator.platform)

/** How a key is written for people. */
export function keyCaps(keys: string): string[] {
  return keys.split(' ').flatMap((key) => {
    if (key.startsWith('mod+')) return [isMac ? '⌘' : 'Ctrl', key.slice(4).toUpperCase()]
    const names: Record<string, string> = { ArrowUp: '↑', ArrowDown: '↓', ArrowLeft: '←', ArrowRight: '→', Escape: 'Esc' }
    return [names[key] ?? key]
  })
}

/** Whether the reader is typing, so that plain letters are text. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false
  if (target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true
  return target instanceof HTMLInputElement && !['checkbox', 'radio', 'button', 'submit', 'range'].includes(target.type)
}

let first = ''
let firstAt = 0
const sequenceTime = 1200 // milliseconds between the keys of a sequence

export function handleKey(event: KeyboardEvent) {
  if (event.defaultPrevented || event.isComposing) return
  const mod = event.metaKey || event.ctrlKey
  const name = mod ? `mod+${event.key.toLowerCase()}` : event.key
  if (event.altKey || (!mod && isTyping(event.target))) return
  const inDialog = event.target instanceof Element && event.target.closest('[role=dialog],[role=menu],[role=listbox]')
  const find = (keys: string) => {
    for (let i = groups.length - 1; i >= 0; i--) {
      const group = groups[i]!
      if (inDialog && !mod && !inDialog.querySelector(`[data-keys="${group.name}"]`)) continue
      const found = group.keys.find((key) => key.keys === keys)
      if (found) return found
    }
  }
  const isSecond = first !== '' && event.timeStamp - firstAt < sequenceTime
  const found = (isSecond && find(`${first} ${name}`)) || find(name)
  first = ''
  if (found) {
    event.preventDefault()
    found.run(event)
  } else if (!mod && groups.some((group) => group.keys.some((key) => key.keys.startsWith(`${name} `)))) {
    first = name
    firstAt = event.timeStamp
  }
}
