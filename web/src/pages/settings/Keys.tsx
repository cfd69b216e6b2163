import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { KeyRoundIcon } from 'lucide-react'
import { useState } from 'react'
import { call } from '../../api/client'
import { useSession, useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { flag, text, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Badge } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { Id } from '../../ui/Copy'
import { Confirm, Dialog, Drawer } from '../../ui/Dialog'
import { EmptyState, Snippet } from '../../ui/EmptyState'
import { TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Secret } from '../../ui/Secret'
import { Switch } from '../../ui/Switch'
import { Table, type Column } from '../../ui/Table'
import { Facts, SkeletonLines, Time } from '../../ui/Values'
import { checkLimits, limitsText, noLimits, toChange, toForm } from './limits'
import { LimitsFields } from './LimitsFields'
import type { Key, List } from './shapes'

const schema = { key: text(), revoked: flag, mint: flag }

const stateOf = (key: Key) => key.revoked_at ? 'revoked' : key.expires_at && new Date(key.expires_at) < new Date() ? 'expired' : 'live'

const columns: Column<Key>[] = [
  { id: 'name', header: 'Name', width: 'minmax(120px,1.4fr)', cell: (key) => key.name, card: 'title' },
  { id: 'hint', header: 'Key', width: '90px', cell: (key) => <code className="font-mono text-xs">…{key.hint}…</code> },
  { id: 'who', header: 'Acts as', width: 'minmax(140px,1.4fr)', cell: (key) => key.email, card: 'none' },
  { id: 'limits', header: 'Limits', width: 'minmax(140px,2fr)', cell: (key) => limitsText(key) || <span className="text-faint">none</span>, card: 'none' },
  { id: 'used', header: 'Last used', width: '110px', cell: (key) => key.last_used_at ? <Time value={key.last_used_at} relative /> : <span className="text-faint">never</span> },
  {
    id: 'state', header: 'State', width: '90px', card: 'title',
    cell: (key) => <Badge tone={stateOf(key) === 'live' ? 'pass' : 'neutral'}>{stateOf(key)}</Badge>,
  },
]

/** A request that works with the key as it stands. */
export const firstCall = (key: string, model: string, origin = location.origin) => `curl ${origin}/v1/chat/completions \\
  -H "Authorization: Bearer ${key}" \\
  -H "Content-Type: application/json" \\
  -d '{"model":"${model}","messages":[{"role":"user","content":"Hello"}]}'`

export function Keys() {
  const ws = useWorkspaceId()
  const [state, set] = useQueryState(schema)
  const [minted, setMinted] = useState<Key & { api_key: string }>()
  const { may } = useAllowed()
  const list = useQuery({
    queryKey: ['keys', ws],
    queryFn: ({ signal }) => call<List<Key>>(ws, 'GET', '/keys', { query: { limit: 500 }, signal }),
  })
  const all = list.data?.data ?? []
  const shown = all.filter((key) => state.revoked || stateOf(key) === 'live')
  const open = all.find((key) => key.id === state.key)
  const ended = all.length - all.filter((key) => stateOf(key) === 'live').length
  return (
    <>
      <Section title="API keys" flush aside={may ? 'of everyone in the workspace' : 'your own'} actions={<>
        {ended > 0 && <Switch label={`Show ${ended} that ended`} on={state.revoked} onChange={(revoked) => set({ revoked })} />}
        <Button look="primary" icon={<KeyRoundIcon size={14} />} onClick={() => set({ mint: true })}>New key</Button>
      </>}>
        {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
        {list.isPending && <div className="p-3"><SkeletonLines /></div>}
        {list.data && shown.length === 0 && (
          <EmptyState title="No key yet" text="A key calls the API as you. It is shown once, when it is made."
            action={<Button look="primary" onClick={() => set({ mint: true })}>Make a key</Button>} />
        )}
        {shown.length > 0 && (
          <Table label="API keys" keys columns={columns} rows={shown} rowKey={(key) => key.id} onOpen={(key) => set({ key: key.id }, { push: true })} />
        )}
        {state.mint && <Mint onClose={() => set({ mint: false })} onMade={(key) => {
          set({ mint: false })
          setMinted(key)
        }} />}
        {minted && (
          <Secret open onClose={() => setMinted(undefined)} title={`The key ${minted.name}`} secret={minted.api_key}
            text="It is shown now and never again: the server keeps a digest alone. Put it where your program reads secrets."
            snippet={firstCall(minted.api_key, minted.models[0]?.replace(/\*$/, '') || 'sim/chat')}
            snippetTitle="A request with it; sim/chat is simulated and needs no provider" />
        )}
        {open && <KeyDrawer key={open.id} of={open} onClose={() => set({ key: '' })} />}
      </Section>
      <Section title="In your programs">
        <p className="text-sm text-soft">Everything that speaks OpenAI’s API works with another address and a key of this list:</p>
        <Snippet text={`export OPENAI_BASE_URL=${location.origin}/v1\nexport OPENAI_API_KEY=sk_sovereign_…`} />
      </Section>
    </>
  )
}

function Mint({ onClose, onMade }: { onClose: () => void; onMade: (key: Key & { api_key: string }) => void }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const [name, setName] = useState('')
  const [limits, setLimits] = useState(noLimits)
  const make = useMutation({
    mutationFn: () => call<Key & { api_key: string }>(ws, 'POST', '/keys', { body: { name: name.trim(), ...toChange(limits) } }),
    onSuccess: (key) => {
      void client.invalidateQueries({ queryKey: ['keys', ws] })
      onMade(key)
    },
  })
  const ready = name.trim() !== '' && Object.keys(checkLimits(limits)).length === 0
  return (
    <Dialog open onClose={onClose} title="New key" text="It acts as you, with your role now and later." footer={<>
      <Button onClick={onClose}>Cancel</Button>
      <Button look="primary" disabled={!ready} busy={make.isPending} onClick={() => make.mutate()}>Make the key</Button>
    </>}>
      <form className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        if (ready) make.mutate()
      }}>
        <TextField label="Name" hint="What it is for: it stands in usage and in the audit trail" maxLength={64} value={name}
          onChange={(event) => setName(event.target.value)} autoFocus />
        <details className="text-sm"><summary className="mb-2 text-soft">Limits (an admin can change them later)</summary>
          <LimitsFields form={limits} onChange={setLimits} ofKey />
        </details>
        {make.error && <Refusal error={make.error} />}
        <button type="submit" hidden />
      </form>
    </Dialog>
  )
}

function KeyDrawer({ of, onClose }: { of: Key; onClose: () => void }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const session = useSession().data
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const before = toForm(of)
  const [form, setForm] = useState(before)
  const [revoking, setRevoking] = useState(false)
  const read = () => client.invalidateQueries({ queryKey: ['keys', ws] })
  const change = toChange(form, before)
  const save = useMutation({
    mutationFn: () => call<Key>(ws, 'PATCH', `/keys/${of.id}`, { body: change }),
    onSuccess: async () => {
      await read()
      tell('The limits are in force', {
        undo: async () => {
          await call(ws, 'PATCH', `/keys/${of.id}`, { body: toChange(before, form) })
          await read()
        },
      })
      onClose()
    },
  })
  const isLive = stateOf(of) === 'live'
  const mayRevoke = may || of.user_id === session?.user_id
  return (
    <Drawer open onClose={onClose} title={of.name} footer={<>
      {isLive && <Button look="danger" disabled={!mayRevoke} title={mayRevoke ? undefined : why} onClick={() => setRevoking(true)}>Revoke</Button>}
      <Button look="primary" disabled={!may || Object.keys(change).length === 0 || Object.keys(checkLimits(form)).length > 0}
        title={why} busy={save.isPending} onClick={() => save.mutate()}>Save the limits</Button>
    </>}>
      <div className="space-y-4">
        <Facts rows={[
          ['Id', <Id value={of.id} />], ['Acts as', of.email], ['State', stateOf(of)],
          ['Made', <Time value={of.created_at} />], ['Last used', <Time value={of.last_used_at} />],
          ...(of.revoked_at ? [['Revoked', <Time value={of.revoked_at} />] as [string, React.ReactNode]] : []),
          ['What it cost', <A to="wallet" query={{ by: 'model', key: of.id }}>its usage by day</A>],
          ['Changes', <A to="settings" query={{ tab: 'audit', subject: of.id }}>its audit trail</A>],
        ]} />
        <LimitsFields form={form} onChange={setForm} ofKey disabled={!may || !isLive} />
        {save.error && <Refusal error={save.error} />}
      </div>
      <Confirm open={revoking} onClose={() => setRevoking(false)} danger action="Revoke" title={`Revoke ${of.name}?`}
        text="Requests with it are refused from that moment on. This cannot be undone; another key can be made at any time."
        run={async () => {
          await call(ws, 'POST', `/keys/${of.id}/revocation`)
          await read()
          tell('The key is revoked')
          onClose()
        }} />
    </Drawer>
  )
}
