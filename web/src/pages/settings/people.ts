import { useQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import type { List, Member } from './shapes'

/** The addresses of the workspace's members, by their ids. */
export function usePeople(): ReadonlyMap<string, string> {
  const ws = useWorkspaceId()
  const members = useQuery({
    queryKey: ['members', ws], queryFn: ({ signal }) => call<List<Member>>(ws, 'GET', '/members', { query: { limit: 500 }, signal }),
  })
  return useMemo(() => new Map(members.data?.data.map((one) => [one.user_id, one.email])), [members.data])
}
