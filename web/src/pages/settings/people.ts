import { useQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import { call } from '../../api/client'
import { useSession, useWorkspaceId } from '../../api/session'
import type { List, Member } from './shapes'

/** The addresses of members by their ids: of all, or of those that are named. The reader's own is known without a call. */
export function usePeople(named?: readonly (string | undefined)[]): ReadonlyMap<string, string> {
  const ws = useWorkspaceId()
  const me = useSession().data
  const members = useQuery({
    queryKey: ['members', ws], enabled: !named || named.some((id) => id && id !== me?.user_id),
    queryFn: ({ signal }) => call<List<Member>>(ws, 'GET', '/members', { query: { limit: 500 }, signal }),
  })
  return useMemo(() => new Map([
    ...(me?.user_id && me.email ? [[me.user_id, me.email] as const] : []), ...(members.data?.data ?? []).map((one) => [one.user_id, one.email] as const),
  ]), [members.data, me])
}
