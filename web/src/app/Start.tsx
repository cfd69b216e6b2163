import { useNavigate, useRouter } from '@tanstack/react-router'
import { useEffect, useRef } from 'react'
import { useSession } from '../api/session'
import { EmptyState } from '../ui/EmptyState'
import { Refusal } from '../ui/Refusal'
import { SkeletonLines } from '../ui/Values'
import { takeReturn } from './return'

const lastKey = 'workspace'

export function rememberWorkspace(id: string) {
  try {
    localStorage.setItem(lastKey, id)
  } catch { /* storage is off */ }
}

function remembered(): string | null {
  try {
    return localStorage.getItem(lastKey)
  } catch {
    return null
  }
}

/** /dashboard: a one-time link is spent by the sign-in page; who is signed in goes to their workspace. */
export function Start() {
  const session = useSession()
  const navigate = useNavigate()
  const { history: visited } = useRouter()
  const hasLink = /^#(link|refused)=/.test(location.hash)
  const back = useRef<string>(null as never)
  back.current ??= takeReturn()
  const here = session.data
  const workspaces = here?.workspaces ?? []
  const target = workspaces.find((w) => w.id === remembered()) ?? workspaces[0]
  const queue = here?.queues?.[0]
  useEffect(() => {
    if (hasLink || (here && !here.signed_in)) {
      void navigate({ to: '/sign-in', hash: location.hash.slice(1), replace: true })
    } else if (here && back.current !== '/') {
      visited.replace(`/dashboard${back.current}`)
    } else if (target) {
      void navigate({ to: `/w/${target.id}` as never, replace: true })
    } else if (queue) {
      void navigate({ to: `/w/${queue.workspace_id}/review/${queue.queue_id}` as never, replace: true })
    }
  }, [hasLink, here, target, queue, navigate, visited])
  return (
    <main className="mx-auto max-w-xl p-8">
      {session.error ? <Refusal error={session.error} retry={() => void session.refetch()} />
        : here?.signed_in && !target && !queue
          ? <EmptyState title="No workspace yet" text="Ask an owner or admin of a workspace to invite you." />
          : <SkeletonLines />}
    </main>
  )
}
