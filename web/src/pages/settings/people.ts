import { useQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import { call } from '../../api/client'
import { useSession, useWorkspaceId } from '../../api/session'
import type { List, Member } from './shapes'

/** The addresses of the workspace's members, by their ids. Nothing is read where the reader is the only one of `ids`. */
export function usePeople(ids?: string[]): ReadonlyMap<string, string> {
  const ws = useWorkspaceId()
  const me = useSession().data
  const members = useQuery({
    queryKey: ['members', ws], enabled: !ids || ids.some((id) => id !== '' && id !== me?.user_id), queryFn: ({ signal }) => call<List<Member>>(ws, 'GET', '/members', { query: { limit: 500 }, signal }),
  })
  return useMemo(() => new Map([...(me?.user_id ? [[me.user_id, me.email ?? me.user_id] as const] : []),
    ...(members.data?.data ?? []).map((one) => [one.user_id, one.email] as const)]), [members.data, me])
}
