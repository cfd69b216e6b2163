import { useEffect, useRef, type ReactNode } from 'react'

interface Props {
  title: string
  /** Beside the title: counts, a status. */
  aside?: ReactNode
  actions?: ReactNode
  /** What stands before the title, such as a way back. */
  above?: ReactNode
  children: ReactNode
}

/** A page: its title, its actions, its content. A new page takes the focus, so that its title is read. */
export function Page({ title, aside, actions, above, children }: Props) {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${title} · Sovereign`
  }, [title])
  useEffect(() => {
    const active = document.activeElement
    if (!active || active === document.body || active.closest('nav')) heading.current?.focus({ preventScroll: true })
  }, [])
  return (
    <div className="mx-auto w-full max-w-[1440px] px-3 pt-3 pb-10 sm:px-6 sm:pt-5">
      {above && <div className="mb-1 text-sm">{above}</div>}
      <header className="mb-4 flex flex-wrap items-center gap-x-3 gap-y-2">
        <h1 ref={heading} tabIndex={-1} className="min-w-0 text-xl font-semibold tracking-tight break-words sm:truncate">{title}</h1>
        {aside && <div className="flex min-w-0 items-center gap-2 text-sm text-soft">{aside}</div>}
        {actions && <div className="no-print ml-auto flex flex-wrap items-center gap-2">{actions}</div>}
      </header>
      {children}
    </div>
  )
}

interface SectionProps { title: ReactNode; aside?: ReactNode; actions?: ReactNode; children: ReactNode; flush?: boolean }

/** A titled part of a page. */
export function Section({ title, aside, actions, children, flush }: SectionProps) {
  return (
    <section className="card mb-4 min-w-0">
      <header className="flex min-h-10 flex-wrap items-center gap-2 border-b border-line px-3.5 py-1.5">
        <h2 className="text-sm font-semibold">{title}</h2>
        {aside && <span className="text-xs text-faint">{aside}</span>}
        {actions && <div className="no-print ml-auto flex flex-wrap items-center gap-1.5">{actions}</div>}
      </header>
      <div className={flush ? '' : 'px-3.5 py-3'}>{children}</div>
    </section>
  )
}
