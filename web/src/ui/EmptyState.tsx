import type { ReactNode } from 'react'
import { CopyButton } from './Copy'

interface Props { title: string; text: ReactNode; snippet?: string; action?: ReactNode }

/** What to do when there is nothing yet: a sentence, and a command that works as it stands. */
export function EmptyState({ title, text, snippet, action }: Props) {
  return (
    <section className="card mx-auto my-6 max-w-2xl px-5 py-5">
      <h2 className="text-lg font-semibold">{title}</h2>
      <div className="words mt-1 text-sm text-soft">{text}</div>
      {snippet && <Snippet text={snippet} />}
      {action && <div className="mt-4 flex flex-wrap gap-2">{action}</div>}
    </section>
  )
}

/** A command or code to copy. */
export function Snippet({ text }: { text: string }) {
  return (
    <div className="mt-3 flex items-start gap-1 rounded-md border border-line bg-raised">
      <pre tabIndex={0} className="min-w-0 flex-1 overflow-x-auto p-3 font-mono text-xs leading-5">{text}</pre>
      <div className="no-print shrink-0 p-1.5"><CopyButton text={text} /></div>
    </div>
  )
}
