import clsx from 'clsx'
import type { ButtonHTMLAttributes, ReactNode, Ref } from 'react'

const looks = {
  plain: 'border-edge/60 bg-surface text-text hover:bg-hover',
  primary: 'border-transparent bg-accent text-on-accent hover:opacity-90',
  danger: 'border-fail/60 bg-surface text-fail hover:bg-fail-ground',
  quiet: 'border-transparent bg-transparent text-soft hover:bg-hover hover:text-text',
}

export type Look = keyof typeof looks

export const buttonClass = (look: Look = 'plain', small = false) => clsx(
  'inline-flex shrink-0 [&_svg]:shrink-0 items-center justify-center gap-1.5 rounded-md border font-medium whitespace-nowrap',
  'transition-colors disabled:opacity-50 aria-disabled:opacity-50',
  small ? 'h-6 px-1.5 text-xs' : 'h-8 px-2.5 text-sm', looks[look],
)

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: Look
  small?: boolean
  icon?: ReactNode
  /** While the action runs the button stays where it is, says so, and takes no second click. */
  busy?: boolean
  ref?: Ref<HTMLButtonElement>
}

export function Button({ look, small, icon, busy, children, className, disabled, ...rest }: Props) {
  return (
    <button type="button" {...rest} disabled={disabled || busy} aria-busy={busy || undefined}
      className={clsx(buttonClass(look, small), className)}>
      {icon}{children}{busy && <span aria-hidden className="animate-pulse">…</span>}
    </button>
  )
}

/** A button that is an icon; its label is read and shown on hover. */
export function IconButton({ label, children, className, look = 'quiet', ...rest }: Props & { label: string }) {
  return (
    <button type="button" {...rest} aria-label={label} title={label}
      className={clsx(buttonClass(look), 'w-8 px-0!', className)}>{children}</button>
  )
}
