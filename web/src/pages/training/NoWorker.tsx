import type { ReactNode } from 'react'
import { useWorkspace } from '../../api/session'
import { EmptyState } from '../../ui/EmptyState'

/** What starts a worker for a workspace, on the server's machine or one that reaches it. */
export const workerSnippet = (origin: string): string => `sovereign admin worker create laptop --json \\
  | python3 -c 'import json,sys; print(json.load(sys.stdin)["token"])' >worker.token
sovereign train worker --install --url ${origin} --token-file worker.token`

/** Nobody trains yet: how a worker is started. */
export function NoWorker({ action }: { action?: ReactNode }) {
  const { manages } = useWorkspace()
  return (
    <EmptyState title="No worker has asked for work yet" snippet={workerSnippet(location.origin)} action={action}
      text={<>A worker trains: on a laptop without a GPU the tiny random models, for learning how it works, and on a machine with GPUs real ones.
        The operator of the server mints its token on the server; the last command runs wherever the server is reached.
        This page sees the worker by itself. {!manages && 'An owner or admin starts runs.'}</>} />
  )
}
