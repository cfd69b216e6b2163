// Where the reader goes on after signing in.
const key = 'return'

/** The path of a place without the page's own prefix. */
export const returnOf = (href: string): string => href.replace(/^\/dashboard(?=\/)/, '')

/** A page of this dashboard, or its start: a link must not lead elsewhere after signing in. */
export function safeReturn(path: string): string {
  return /^\/w\/[\w$\-./?=&%+:~,]*$/.test(path) ? path : '/'
}

/** Keeps the page while the browser is at the identity provider. */
export function keepReturn(path: string) {
  try {
    sessionStorage.setItem(key, safeReturn(path))
  } catch { /* storage is off: signing in leads to the start */ }
}

export function takeReturn(): string {
  try {
    const kept = sessionStorage.getItem(key)
    sessionStorage.removeItem(key)
    return safeReturn(kept ?? '/')
  } catch {
    return '/'
  }
}
