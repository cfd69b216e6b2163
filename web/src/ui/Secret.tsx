import { TriangleAlertIcon } from 'lucide-react'
import { Button } from './Button'
import { Dialog } from './Dialog'
import { Snippet } from './EmptyState'

interface Props {
  open: boolean
  onClose: () => void
  title: string
  /** What it is, and that it is shown once. */
  text: string
  secret: string
  /** A command that uses it, as it stands. */
  snippet?: string
  snippetTitle?: string
}

/** A secret that is shown once. */
export function Secret({ open, onClose, title, text, secret, snippet, snippetTitle }: Props) {
  return (
    <Dialog open={open} onClose={onClose} title={title} wide footer={<Button look="primary" onClick={onClose}>I have kept it</Button>}>
      <p className="flex gap-2 text-sm text-soft">
        <TriangleAlertIcon size={16} className="mt-0.5 shrink-0 text-warn" aria-hidden /><span>{text}</span>
      </p>
      <Snippet text={secret} />
      {snippet && <><p className="mt-4 text-sm font-medium">{snippetTitle ?? 'Try it'}</p><Snippet text={snippet} /></>}
    </Dialog>
  )
}
