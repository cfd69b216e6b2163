import { cloneElement, lazy, Suspense, useState, type ReactElement, type ReactNode } from 'react'

export interface MenuItem {
  label: ReactNode
  run: () => void
  icon?: ReactNode
  hint?: ReactNode
  chosen?: boolean
  danger?: boolean
  disabled?: boolean
}

export interface MenuProps {
  trigger: ReactElement<{ onClick?: () => void; 'aria-haspopup'?: 'menu' }>
  /** Groups are separated by a line; a group may have a heading. */
  groups: { heading?: string; items: MenuItem[] }[]
  side?: 'top' | 'bottom' | 'right'
  align?: 'start' | 'end'
}

const MenuPopup = lazy(() => import('./MenuPopup'))

/** A button with a menu. What draws the menu is loaded when it is first opened. */
export function Menu(props: MenuProps) {
  const [opened, setOpened] = useState(false)
  const closed = cloneElement(props.trigger, { onClick: () => setOpened(true), 'aria-haspopup': 'menu' })
  return opened ? <Suspense fallback={closed}><MenuPopup {...props} /></Suspense> : closed
}
