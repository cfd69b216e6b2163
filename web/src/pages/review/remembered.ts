import { useState } from 'react'

/** A switch that this browser remembers. It is off until it is set. */
export function useRemembered(key: string): [boolean, (on: boolean) => void] {
  const [on, setOn] = useState(() => {
    try {
      return localStorage.getItem(key) === 'on'
    } catch {
      return false
    }
  })
  return [on, (next) => {
    setOn(next)
    try {
      localStorage.setItem(key, next ? 'on' : 'off')
    } catch { /* storage is off: it lasts as long as the page */ }
  }]
}
