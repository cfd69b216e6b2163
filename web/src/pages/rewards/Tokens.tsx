import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { useAllowed } from '../../ui/Allowed'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Confirm } from '../../ui/Dialog'
import { TextField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Secret } from '../../ui/Secret'
import { Time } from '../../ui/Values'

/** Tokens that may score in one session and do nothing else, for trainers that cannot send headers. */
export function Tokens({ session, active }: { session: string; active: boolean }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const [shown, setShown] = useState(false) // few trainers need a token: the list is read when it is wanted
  const [naming, setNaming] = useState(false)
  const [name, setName] = useState('')
  const [made, setMade] = useState<{ name: string; token: string }>()
  const [revoking, setRevoking] = useState<{ id: string; name: string }>()
  const key = ['reward-tokens', ws, session]
  const path = { id: session }
  const list = useQuery({
    queryKey: key, enabled: shown, queryFn: ({ signal }) => data(v1(ws).GET('/v1/reward/sessions/{id}/tokens', { params: { path, query: { limit: 100 } }, signal })),
  })
  const make = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/reward/sessions/{id}/tokens', { params: { path }, body: { name: name.trim() } })),
    onSuccess: (token) => {
      void client.invalidateQueries({ queryKey: key })
      setName('')
      setShown(true)
      setMade(token)
    },
  })
  return (
    <Section title="Tokens" flush aside="for trainers that cannot send a header" actions={<>
      <CurlButton call={{ path: `/v1/reward/sessions/${session}/tokens` }} />
      {!shown && <Button small onClick={() => setShown(true)}>Show them</Button>}
      <Button small disabled={!may || !active} title={why ?? (active ? undefined : 'The session has ended')} onClick={() => setNaming(true)}>New token</Button>
    </>}>
      {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
      {!shown && <p className="px-3.5 py-3 text-sm text-soft">OpenRLHF and slime need one; TRL and verl use an API key.</p>}
      {list.data?.data.length === 0 && <p className="px-3.5 py-3 text-sm text-soft">None. OpenRLHF and slime need one; TRL and verl use an API key.</p>}
      <ul>
        {list.data?.data.map((one) => (
          <li key={one.id} className="flex items-center gap-3 border-b border-line px-3.5 py-2 text-sm last:border-0">
            <span className="min-w-0 flex-1 truncate font-medium">{one.name}</span><span className="text-xs text-faint"><Time value={one.created_at} relative /></span>
            <Button small look="danger" disabled={!may} title={why} onClick={() => setRevoking(one)}>Revoke</Button>
          </li>
        ))}
      </ul>
      <Confirm open={naming} onClose={() => setNaming(false)} action="Make it" title="New token" text="It can score in this session, and do nothing else. It is shown once."
        run={() => make.mutateAsync()}><TextField label="What it is for" maxLength={64} value={name} onChange={(event) => setName(event.target.value)} /></Confirm>
      <Confirm open={Boolean(revoking)} onClose={() => setRevoking(undefined)} danger action="Revoke" title={`Revoke ${revoking?.name}?`}
        text="A trainer that uses it gets an error from then on." run={async () => {
          await data(v1(ws).DELETE('/v1/reward/sessions/{id}/tokens/{token_id}', { params: { path: { id: session, token_id: revoking!.id } } }))
          await client.invalidateQueries({ queryKey: key })
          tell('The token is revoked')
        }} />
      {made && <Secret open onClose={() => setMade(undefined)} title={`The token ${made.name}`} secret={made.token} text="It is shown now and never again. OpenRLHF writes it into its log: revoke it when the run is over."
        snippetTitle="OpenRLHF, then slime" snippet={`--reward.remote_url ${location.origin}/rewards/v1/${made.token}/openrlhf\n--rm-type remote_rm --rm-url ${location.origin}/rewards/v1/${made.token}/slime`} />}
    </Section>
  )
}
