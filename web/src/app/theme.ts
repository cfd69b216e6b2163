import { useSyncExternalStore } from 'react'

export type Theme = 'system' | 'light' | 'dark'

const listeners = new Set<() => void>()

function stored(): Theme {
  const set = document.documentElement.dataset.theme
  return set === 'light' || set === 'dark' ? set : 'system'
}

export function setTheme(theme: Theme) {
  if (theme === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = theme
  try {
    if (theme === 'system') localStorage.removeItem('theme')
    else localStorage.setItem('theme', theme)
  } catch { /* storage is off: the choice lasts as long as the page */ }
  listeners.forEach((tell) => tell())
}

export function useTheme(): Theme {
  return useSyncExternalStore((tell) => {
    listeners.add(tell)
    return () => void listeners.delete(tell)
  }, stored)
}
