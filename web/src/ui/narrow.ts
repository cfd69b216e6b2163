import { useSyncExternalStore } from 'react'

const query = typeof matchMedia === 'function' ? matchMedia('(max-width: 640px)') : null

/** Whether the page is as narrow as a phone. */
export const useNarrow = (): boolean => useSyncExternalStore(
  (tell) => {
    query?.addEventListener('change', tell)
    return () => query?.removeEventListener('change', tell)
  },
  () => query?.matches ?? false,
)
