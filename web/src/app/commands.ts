// What the command palette offers beside the pages. A page adds its own commands while it is open.
import { useEffect, useRef, useSyncExternalStore } from 'react'

export interface Command { id: string; label: string; hint?: string; run: () => void }

let commands: readonly Command[] = []
const listeners = new Set<() => void>()

function publish(next: readonly Command[]) {
  commands = next
  listeners.forEach((tell) => tell())
}

export const useAllCommands = () => useSyncExternalStore((tell) => {
  listeners.add(tell)
  return () => void listeners.delete(tell)
}, () => commands)

/** Adds commands to the palette while the component is mounted. */
export function useCommands(own: Command[]) {
  const latest = useRef(own)
  latest.current = own
  const shape = own.map((command) => `${command.id}\n${command.label}`).join('\n')
  useEffect(() => {
    const added = latest.current.map((command, i) => ({ ...command, run: () => latest.current[i]?.run() }))
    publish([...commands, ...added])
    return () => publish(commands.filter((command) => !added.includes(command)))
  }, [shape])
}

/** How well words fit a label: every word must begin a word of it, or stand in it. Lower is better; null is no fit. */
export function fit(words: string, label: string): number | null {
  const text = label.toLowerCase()
  let score = 0
  for (const word of words.toLowerCase().split(/\s+/).filter(Boolean)) {
    const at = text.indexOf(word)
    if (at < 0) return null
    score += at === 0 ? 0 : /[\s·/]/.test(text[at - 1]!) ? 1 : 3
  }
  return score
}
