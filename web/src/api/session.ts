import { queryOptions, useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { call } from './client'

export type Role = 'owner' | 'admin' | 'member'

export interface Workspace { id: string; name: string; role: Role; demo?: boolean }

export interface Session {
  object: 'session'
  signed_in: boolean
  session_id?: string
  user_id?: string
  email?: string
  expires_at?: string
  workspaces?: Workspace[]
  queues?: { workspace_id: string; queue_id: string; name: string }[]
  /** secure is false over plain HTTP from another machine: then nobody can sign in. */
  sign_in: { secure: boolean; link: boolean; password: boolean; oidc: { name: string } | null }
  release: string
}

export const sessionQuery = queryOptions({
  queryKey: ['session'],
  queryFn: ({ signal }) => call<Session>(null, 'GET', '/session', { signal }),
  staleTime: 60_000,
})

export const useSession = () => useQuery(sessionQuery)

/** The id of the workspace in the path. */
export const useWorkspaceId = (): string => (useParams({ strict: false }) as { workspace?: string }).workspace ?? ''

/** Whether the workspace in the path is a demo. */
export function useIsDemo(): boolean {
  const id = useWorkspaceId()
  return Boolean(useSession().data?.workspaces?.find((workspace) => workspace.id === id)?.demo)
}

/** The workspace in the path, with the reader's role; without a role the reader is a reviewer of single queues. */
export function useWorkspace(): { id: string; name: string; role: Role | ''; manages: boolean } {
  const id = useWorkspaceId()
  const session = useSession().data
  const found = session?.workspaces?.find((workspace) => workspace.id === id)
  const isReviewer = session?.queues?.some((queue) => queue.workspace_id === id)
  const role = found?.role ?? ''
  return { id, name: found?.name ?? (isReviewer ? 'Review' : id), role, manages: role === 'owner' || role === 'admin' }
}
