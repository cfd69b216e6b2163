import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useId, useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { ReadOnly, useAllowed } from '../../ui/Allowed'
import { Button } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { Confirm, Dialog } from '../../ui/Dialog'
import { Field, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { useModels } from '../../ui/ModelPicker'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { SkeletonLines, Time } from '../../ui/Values'

/** The workspace's own keys at providers, and servers of its own for evals. Secrets are written and never read. */
export function Providers() {
  return <><ProviderKeys /><EvalEndpoints /></>
}

const row = 'flex flex-wrap items-center gap-x-3 gap-y-1 border-b border-line px-3.5 py-2 text-sm last:border-0'

function ProviderKeys() {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const [editing, setEditing] = useState<string>()
  const [deleting, setDeleting] = useState('')
  const keys = useQuery({
    queryKey: ['provider-keys', ws],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/provider-keys', { params: { query: { limit: 200 } }, signal })),
  })
  const read = () => client.invalidateQueries({ queryKey: ['provider-keys', ws] })
  return (
    <Section title="Provider keys" flush aside="requests with your own key cost the wallet nothing" actions={<>
      <CurlButton call={{ path: '/v1/provider-keys' }} />
      <Button disabled={!may} title={why} onClick={() => setEditing('')}>Set a key</Button>
    </>}>
      {keys.error && <div className="p-3"><Refusal error={keys.error} retry={() => void keys.refetch()} /></div>}
      {keys.isPending && <div className="p-3"><SkeletonLines lines={2} /></div>}
      {keys.data?.data.length === 0 && (
        <p className="px-3.5 py-3 text-sm text-soft">None: requests run with the operator’s keys, and the wallet pays for them.</p>
      )}
      <ul>
        {keys.data?.data.map((key) => (
          <li key={key.provider} className={row}>
            <span className="min-w-0 flex-1 basis-40"><span className="font-medium">{key.provider}</span>
              {key.base_url && <span className="block truncate text-xs text-faint">{key.base_url}</span>}</span>
            <span className="text-xs text-faint">set <Time value={key.updated_at} relative /></span>
            <Button small disabled={!may} title={why} onClick={() => setEditing(key.provider)}>Rotate</Button>
            <Button small look="danger" disabled={!may} title={why} onClick={() => setDeleting(key.provider)}>Delete</Button>
          </li>
        ))}
      </ul>
      {editing !== undefined && <SetProviderKey provider={editing} onClose={() => setEditing(undefined)} onDone={read} />}
      <Confirm open={deleting !== ''} onClose={() => setDeleting('')} danger action="Delete" title={`Delete the key at ${deleting}?`}
        text="Requests to its models run with the operator’s key from then on, if there is one, and the wallet pays for them."
        run={async () => {
          await data(v1(ws).DELETE('/v1/provider-keys/{provider}', { params: { path: { provider: deleting } } }))
          await read()
          tell('The key is deleted')
        }} />
    </Section>
  )
}

function SetProviderKey({ provider: fixed, onClose, onDone }: { provider: string; onClose: () => void; onDone: () => Promise<unknown> }) {
  const ws = useWorkspaceId()
  const { tell } = useToast()
  const list = useId()
  const models = useModels().data ?? []
  const known = [...new Set(models.filter((m) => !m.simulated && m.target_model === undefined).map((m) => m.owned_by))].sort()
  const [provider, setProvider] = useState(fixed)
  const [key, setKey] = useState('')
  const [url, setUrl] = useState('')
  const put = useMutation({
    mutationFn: () => data(v1(ws).PUT('/v1/provider-keys', { body: { provider, api_key: key, ...(url && { base_url: url }) } })),
    onSuccess: async () => {
      await onDone()
      tell(`The key at ${provider} is in force`)
      onClose()
    },
  })
  return (
    <Dialog open onClose={onClose} title={fixed ? `Rotate the key at ${fixed}` : 'Set a provider key'}
      text="It is encrypted when it is stored, and never shown again: not here, not by the API." footer={<>
        <Button onClick={onClose}>Cancel</Button>
        <Button look="primary" disabled={!provider || !key} busy={put.isPending} onClick={() => put.mutate()}>Save</Button>
      </>}>
      <form className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        if (provider && key) put.mutate()
      }}>
        <Field label="Provider">
          {(props) => <>
            <input {...props} className="control w-full" list={list} value={provider} readOnly={fixed !== ''} autoComplete="off"
              onChange={(event) => setProvider(event.target.value.trim())} />
            <datalist id={list}>{known.map((name) => <option key={name} value={name} />)}</datalist>
          </>}
        </Field>
        <TextField label="Key" type="password" autoComplete="off" value={key} onChange={(event) => setKey(event.target.value)} />
        <TextField label="Base URL" type="url" placeholder="the provider’s own" hint="Only if it is to be sent elsewhere" value={url}
          onChange={(event) => setUrl(event.target.value.trim())} />
        {put.error && <Refusal error={put.error} />}
        <button type="submit" hidden />
      </form>
    </Dialog>
  )
}

function EvalEndpoints() {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const [adding, setAdding] = useState(false)
  const [deleting, setDeleting] = useState<{ id: string; name: string }>()
  const list = useQuery({
    queryKey: ['eval-endpoints', ws],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/endpoints', { params: { query: { limit: 200 } }, signal })),
  })
  const read = () => client.invalidateQueries({ queryKey: ['eval-endpoints', ws] })
  return (
    <Section title="Eval endpoints" flush aside="servers of your own that evals may compare" actions={<>
      <CurlButton call={{ path: '/v1/endpoints' }} />
      <Button disabled={!may} title={why} onClick={() => setAdding(true)}>Register a server</Button>
    </>}>
      <div className="px-3.5 pt-2 empty:hidden"><ReadOnly /></div>
      {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
      {list.isPending && <div className="p-3"><SkeletonLines lines={2} /></div>}
      {list.data?.data.length === 0 && (
        <p className="px-3.5 py-3 text-sm text-soft">None. Any OpenAI-compatible server with a public address can be compared in an <A to="evals">eval</A>.</p>
      )}
      <ul>
        {list.data?.data.map((one) => (
          <li key={one.id} className={row}>
            <span className="min-w-0 flex-1 basis-48"><span className="font-medium">{one.name}</span>
              <span className="block truncate text-xs text-faint">{one.base_url} · {one.model}{one.has_api_key ? ' · with a key' : ''}</span></span>
            <Id value={`endpoint/${one.id}`} />
            <Button small look="danger" disabled={!may} title={why} onClick={() => setDeleting(one)}>Delete</Button>
          </li>
        ))}
      </ul>
      {adding && <AddEndpoint onClose={() => setAdding(false)} onDone={read} />}
      <Confirm open={Boolean(deleting)} onClose={() => setDeleting(undefined)} danger action="Delete" title={`Delete ${deleting?.name}?`}
        text="Evals keep their results; no new one can name it." run={async () => {
          await data(v1(ws).DELETE('/v1/endpoints/{id}', { params: { path: { id: deleting!.id } } }))
          await read()
          tell('The endpoint is deleted')
        }} />
    </Section>
  )
}

function AddEndpoint({ onClose, onDone }: { onClose: () => void; onDone: () => Promise<unknown> }) {
  const ws = useWorkspaceId()
  const { tell } = useToast()
  const [form, setForm] = useState({ name: '', base_url: '', model: '', api_key: '' })
  const body = { name: form.name.trim(), base_url: form.base_url.trim(), model: form.model.trim(), ...(form.api_key && { api_key: form.api_key }) }
  const put = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/endpoints', { body })),
    onSuccess: async () => {
      await onDone()
      tell(`${body.name} can be compared now`)
      onClose()
    },
  })
  const field = (name: keyof typeof form) => ({
    value: form[name], onChange: (event: { target: { value: string } }) => setForm({ ...form, [name]: event.target.value }),
  })
  const ready = body.name && body.base_url && body.model
  return (
    <Dialog open onClose={onClose} title="Register a server" text="A name that is taken is changed." footer={<>
      <CurlButton small call={{ method: 'POST', path: '/v1/endpoints', body: { ...body, ...(form.api_key && { api_key: '…' }) } }} />
      <Button onClick={onClose}>Cancel</Button>
      <Button look="primary" disabled={!ready} busy={put.isPending} onClick={() => put.mutate()}>Register</Button>
    </>}>
      <div className="space-y-3">
        <TextField label="Name" autoFocus {...field('name')} />
        <TextField label="Base URL" type="url" placeholder="https://models.example.com/v1" {...field('base_url')} />
        <TextField label="Model" hint="What the server calls it" {...field('model')} />
        <TextField label="Key" type="password" autoComplete="off" hint="If the server asks for one; it is never shown again" {...field('api_key')} />
        {put.error && <Refusal error={put.error} />}
      </div>
    </Dialog>
  )
}
