import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect } from 'react'
import { useWorkspaceId } from './api/session'

/** A list that is opened with the id of one of its things in the query leads to that thing's own page. */
export function useForward(params: string[], base: string) {
  const query = useSearch({ strict: false }) as Record<string, string>
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const id = params.map((name) => query[name]).find(Boolean)
  useEffect(() => {
    if (id) void navigate({ to: `/w/${ws}/${base}/${encodeURIComponent(id)}` as never, search: {} as never, replace: true })
  }, [id, ws, base, navigate])
}
