import { useQuery } from '@tanstack/react-query'
import { call } from '../api/client'
import { useSession, useWorkspace } from '../api/session'

interface Members { data: { user_id: string; email: string }[] }

/** A person as readers know them: the address of a member, else the id or the name that was given. */
export function Person({ id }: { id: string }) {
  const workspace = useWorkspace()
  const me = useSession().data
  const members = useQuery({
    queryKey: ['members', workspace.id], enabled: workspace.role !== '' && id.startsWith('usr_') && id !== me?.user_id, staleTime: 5 * 60_000,
    queryFn: ({ signal }) => call<Members>(workspace.id, 'GET', '/members', { query: { limit: 500 }, signal }),
  })
  const email = id === me?.user_id ? me.email : members.data?.data.find((one) => one.user_id === id)?.email
  return <span title={email ? id : undefined}>{email ?? id}</span>
}
