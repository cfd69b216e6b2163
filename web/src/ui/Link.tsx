import { Link } from '@tanstack/react-router'
import type { AnchorHTMLAttributes, ReactNode } from 'react'
import { useWorkspaceId } from '../api/session'

interface Props extends Omit<AnchorHTMLAttributes<HTMLAnchorElement>, 'href'> {
  /** A page of this workspace: "logs", "judges/crit_1". */
  to: string
  query?: Record<string, string>
  children?: ReactNode
  exact?: boolean
}

/** A link to a page of this workspace. */
export function A({ to, query, exact, className = 'link', ...rest }: Props) {
  const workspace = useWorkspaceId()
  return (
    <Link {...rest} to={'/w/$workspace' + (to ? `/${to}` : '')} params={{ workspace } as never} search={(query ?? {}) as never}
      className={className} activeOptions={{ exact, includeSearch: false }} />
  )
}
