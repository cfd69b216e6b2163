import { useMutation, useQueryClient } from '@tanstack/react-query'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { Button } from '../../ui/Button'
import { Snippet } from '../../ui/EmptyState'
import { Refusal } from '../../ui/Refusal'

interface MadeKey { api_key: string }

const command = (key: string) => [
  `curl -sS ${location.origin}/v1/chat/completions \\`,
  `  -H "Authorization: Bearer ${key}" \\`,
  `  -H "Content-Type: application/json" \\`,
  `  -d '{"model":"sim/chat","messages":[{"role":"user","content":"Hello"}]}'`,
].join('\n')

/** A request that works as it stands, with a fresh key if the reader wants one. */
export function FirstRequest() {
  const workspace = useWorkspaceId()
  const queries = useQueryClient()
  const make = useMutation({
    mutationFn: () => call<MadeKey>(workspace, 'POST', '/keys', { body: { name: 'first request' } }),
    onSuccess: () => void queries.invalidateQueries({ queryKey: ['keys', workspace] }),
  })
  const key = make.data?.api_key
  return (
    <>
      <Snippet text={command(key ?? '$SOVEREIGN_API_KEY')} />
      {key ? <p className="mt-1 text-xs text-warn">The key in this command is shown once: keep it now.</p> : (
        <div className="mt-2 flex items-center gap-2">
          <Button busy={make.isPending} onClick={() => make.mutate()}>Put a fresh key into it</Button>
          <span className="text-xs text-faint">Keys are listed and revoked in Settings.</span>
        </div>
      )}
      {make.error && <div className="mt-2"><Refusal error={make.error} /></div>}
    </>
  )
}
