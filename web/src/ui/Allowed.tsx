import { LockIcon } from 'lucide-react'
import { useWorkspace } from '../api/session'

const who = { manage: 'an owner or admin', own: 'an owner' }

/** Whether the reader may do something, and the sentence for who may not. */
export function useAllowed(need: keyof typeof who = 'manage'): { may: boolean; why: string | undefined } {
  const { role, manages } = useWorkspace()
  const may = need === 'own' ? role === 'owner' : manages
  return { may, why: may ? undefined : `This needs ${who[need]} of the workspace` }
}

/** Says who may change what is shown. Nothing where the reader may. */
export function ReadOnly({ need }: { need?: keyof typeof who }) {
  const { why } = useAllowed(need)
  if (!why) return null
  return <p className="mb-3 flex items-center gap-1.5 text-xs text-soft"><LockIcon size={12} aria-hidden /> {why}; you can look at it.</p>
}
