import { Dialog as Base } from '@base-ui/react/dialog'
import clsx from 'clsx'
import { XIcon } from 'lucide-react'
import { useRef, useState, type ReactNode } from 'react'
import { useMutation } from '@tanstack/react-query'
import { Button, IconButton } from './Button'
import { Field } from './Field'
import { Refusal } from './Refusal'

interface Props {
  open: boolean
  onClose: () => void
  title: string
  text?: ReactNode
  children?: ReactNode
  footer?: ReactNode
  /** A drawer is the full height of the right side. */
  drawer?: boolean
  wide?: boolean
}

/** A modal dialog or drawer. Focus moves in and comes back; Escape closes. */
export function Dialog({ open, onClose, title, text, children, footer, drawer, wide }: Props) {
  const popup = useRef<HTMLDivElement>(null)
  const body = useRef<HTMLDivElement>(null)
  // A dialog begins at its first field. A drawer is read first.
  const first = () => (drawer ? popup.current : body.current?.querySelector<HTMLElement>('input,select,textarea') ?? popup.current)
  return (
    <Base.Root open={open} onOpenChange={(next) => next || onClose()}>
      <Base.Portal>
        <Base.Backdrop className="no-print fixed inset-0 z-40 bg-shade" />
        <Base.Popup ref={popup} tabIndex={-1} initialFocus={first} className={clsx('fixed z-50 flex flex-col border-line bg-surface shadow-pop outline-none', drawer
          ? ['inset-y-0 right-0 w-full border-l', wide ? 'sm:w-[min(1100px,92vw)]' : 'sm:w-[min(720px,92vw)]']
          : ['top-[8vh] left-1/2 max-h-[84vh] w-[calc(100vw-24px)] -translate-x-1/2 rounded-lg border',
            wide ? 'max-w-3xl' : 'max-w-lg'])}>
          <header className="flex items-start gap-3 border-b border-line px-4 py-2.5">
            <div className="min-w-0 flex-1 py-1">
              <Base.Title className="truncate text-base font-semibold">{title}</Base.Title>
              {text && <Base.Description className="mt-0.5 text-sm text-soft" render={<div />}>{text}</Base.Description>}
            </div>
            <Base.Close render={<IconButton label="Close"><XIcon size={16} /></IconButton>} />
          </header>
          <div ref={body} className="min-h-0 flex-1 overflow-y-auto px-4 py-3">{children}</div>
          {footer && (
            <footer className="flex flex-wrap items-center justify-end gap-2 border-t border-line px-4 py-2.5">{footer}</footer>
          )}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  )
}

export const Drawer = (props: Omit<Props, 'drawer'>) => <Dialog {...props} drawer />

interface ConfirmProps {
  open: boolean
  onClose: () => void
  title: string
  text: ReactNode
  /** The verb of the button. */
  action: string
  /** The reader types this name before the button works: for what cannot be undone. */
  typedName?: string
  danger?: boolean
  run: () => Promise<unknown>
  /** Such as a price or further fields. */
  children?: ReactNode
}

/** Asks before an action, shows its refusal in place, and closes when it is done. */
export function Confirm({ open, onClose, title, text, action, typedName, danger, run, children }: ConfirmProps) {
  const [typed, setTyped] = useState('')
  const todo = useMutation({ mutationFn: run, onSuccess: () => close() })
  const close = () => {
    setTyped('')
    todo.reset()
    onClose()
  }
  const ready = !typedName || typed === typedName
  return (
    <Dialog open={open} onClose={close} title={title} footer={<>
      <Button onClick={close}>Cancel</Button>
      <Button look={danger ? 'danger' : 'primary'} disabled={!ready} busy={todo.isPending} onClick={() => todo.mutate()}>
        {action}
      </Button>
    </>}>
      <form className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        if (ready) todo.mutate()
      }}>
        <div className="text-sm text-soft">{text}</div>
        {children}
        {typedName && (
          <Field label={<>Type <strong className="text-text">{typedName}</strong> to confirm</>}>
            {(props) => <input {...props} className="control w-full" autoComplete="off" spellCheck={false} value={typed}
              onChange={(event) => setTyped(event.target.value)} />}
          </Field>
        )}
        {todo.error && <Refusal error={todo.error} />}
        <button type="submit" hidden />
      </form>
    </Dialog>
  )
}
