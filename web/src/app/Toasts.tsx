// Short messages about what was done, with a way to undo it. They stay while the pointer or the focus is on them.
import { XIcon } from 'lucide-react'
import { createContext, useCallback, useContext, useMemo, useRef, useState, type ReactNode } from 'react'
import { asApiError } from '../api/errors'
import { useKeys } from '../keys'
import { Button, IconButton } from '../ui/Button'

interface Told { text?: string; undo?: () => void | Promise<unknown>; error?: boolean }
interface Toast extends Told { id: number; title: string }
interface Teller { tell: (title: string, told?: Told) => void; fail: (error: unknown) => void }

const shownFor = 7000 // milliseconds; an error stays until it is dismissed
const most = 4

const Context = createContext<Teller>({ tell: () => {}, fail: () => {} })

/** tell("Deleted", { undo }) shows a message; fail(error) shows a refusal. */
export const useToast = () => useContext(Context)

export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<Toast[]>([])
  const list = useRef<HTMLDivElement>(null)
  const held = useRef(false)
  const next = useRef(0)

  const close = useCallback((id: number) => setToasts((all) => all.filter((toast) => toast.id !== id)), [])
  const tell = useCallback((title: string, told: Told = {}) => {
    const id = next.current++
    setToasts((all) => [...all, { id, title, ...told }].slice(-most))
    if (told.error) return
    const end = () => void (held.current ? setTimeout(end, 1000) : close(id))
    setTimeout(end, shownFor)
  }, [close])
  const fail = useCallback((error: unknown) => {
    const e = asApiError(error)
    tell(e.message, { text: [e.remedy, e.requestId].filter(Boolean).join(' · '), error: true })
  }, [tell])
  const teller = useMemo(() => ({ tell, fail }), [tell, fail])

  useKeys('Messages', [{ keys: 'F6', label: 'Go to the messages', run: () => list.current?.focus() }], toasts.length > 0)
  return (
    <Context.Provider value={teller}>
      {children}
      <div ref={list} role="region" aria-label="Messages" aria-live="polite" tabIndex={-1} data-toast
        onPointerEnter={() => (held.current = true)} onPointerLeave={() => (held.current = false)}
        onFocus={() => (held.current = true)} onBlur={() => (held.current = false)}
        className="fixed bottom-3 left-3 sm:left-55 z-70 flex w-[min(360px,calc(100vw-24px))] flex-col gap-2">
        {toasts.map((toast) => (
          <div key={toast.id} className={`popup flex items-start gap-2 py-2 pr-1.5 pl-3 ${toast.error ? 'border-fail/60' : ''}`}>
            <div className="min-w-0 flex-1 py-1">
              <p className="text-sm font-medium break-words">{toast.title}</p>
              {toast.text && <p className="text-xs break-words text-soft">{toast.text}</p>}
            </div>
            {toast.undo && (
              <Button small className="mt-1" onClick={() => {
                close(toast.id)
                Promise.resolve(toast.undo?.()).catch(fail)
              }}>Undo</Button>
            )}
            <IconButton label="Dismiss" onClick={() => close(toast.id)}><XIcon size={14} /></IconButton>
          </div>
        ))}
      </div>
    </Context.Provider>
  )
}
