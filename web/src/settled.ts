import { useEffect, useState } from 'react'

/** The value a moment after it last changed. */
export function useSettled<T>(value: T, ms = 400): T {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const later = setTimeout(() => setSettled(value), ms)
    return () => clearTimeout(later)
  }, [value, ms])
  return settled
}
