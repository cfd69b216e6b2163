import { useEffect, useRef, useState, type ReactNode } from 'react'

/** What is drawn, and what it reads, once a reader has scrolled to it. A printed page has it too. */
export function WhenSeen({ children, height }: { children: ReactNode; height: number }) {
  const box = useRef<HTMLDivElement>(null)
  const [seen, setSeen] = useState(typeof IntersectionObserver === 'undefined')
  useEffect(() => {
    if (seen || !box.current) return
    const show = () => setSeen(true)
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && show())
    observer.observe(box.current)
    addEventListener('beforeprint', show)
    return () => {
      observer.disconnect()
      removeEventListener('beforeprint', show)
    }
  }, [seen])
  return seen ? <>{children}</> : <div ref={box} style={{ minHeight: height }} />
}
