import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { BellPlusIcon } from 'lucide-react'
import { useState } from 'react'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { parseSearch } from '../../query'
import { ReadOnly, useAllowed } from '../../ui/Allowed'
import { Badge, Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { Confirm, Dialog, Drawer } from '../../ui/Dialog'
import { SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { hasPage } from '../../ui/Place'
import { Refusal } from '../../ui/Refusal'
import { Secret } from '../../ui/Secret'
import { Switch } from '../../ui/Switch'
import { Table, type Column } from '../../ui/Table'
import { SkeletonLines, Time } from '../../ui/Values'
import type { Channel, Delivery, List, Notice, Notifications as Shape } from './shapes'

/** Where the workspace is told of what needs a person, and what it was told. */
export function Notifications() {
  const ws = useWorkspaceId()
  const { may, why } = useAllowed()
  const [adding, setAdding] = useState(false)
  const [secret, setSecret] = useState<Channel>()
  const [open, setOpen] = useState<Channel>()
  const about = useQuery({ queryKey: ['notifications', ws], queryFn: ({ signal }) => call<Shape>(ws, 'GET', '/notifications', { signal }) })
  const channels = useQuery({
    queryKey: ['channels', ws], enabled: may,
    queryFn: ({ signal }) => call<List<Channel>>(ws, 'GET', '/channels', { query: { limit: 100 }, signal }),
  })
  if (about.error) return <Refusal error={about.error} retry={() => void about.refetch()} />
  if (!about.data) return <SkeletonLines />
  return (
    <>
      <Section title="Channels" flush aside="where notices go" actions={
        <Button look="primary" icon={<BellPlusIcon size={14} />} disabled={!may} title={why} onClick={() => setAdding(true)}>New channel</Button>
      }>
        <div className="px-3.5 pt-2 empty:hidden"><ReadOnly /></div>
        {channels.error && <div className="p-3"><Refusal error={channels.error} retry={() => void channels.refetch()} /></div>}
        {may && channels.data?.data.length === 0 && (
          <p className="px-3.5 py-3 text-sm text-soft">None: notices are listed below and sent nowhere. A webhook is signed as Standard
            Webhooks says{about.data.email ? '; e-mail is configured too.' : '. E-mail is not configured on this server.'}</p>
        )}
        <ul>
          {channels.data?.data.map((one) => (
            <li key={one.id} className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b border-line px-3.5 py-2 text-sm last:border-0">
              <span className="min-w-0 flex-1 basis-56"><span className="block truncate font-medium">{one.address}</span>
                <span className="block truncate text-xs text-faint">{one.type} · {one.kinds.join(', ') || 'no kinds'}</span></span>
              {!one.enabled ? <Badge tone="warn" title={one.disabled_reason}>{one.disabled_reason ? 'disabled by the server' : 'off'}</Badge>
                : one.failing_since ? <Badge tone="fail">failing</Badge> : <Badge tone="pass">on</Badge>}
              <Button small onClick={() => setOpen(one)}>Open</Button>
            </li>
          ))}
        </ul>
      </Section>
      <LowWallet low={about.data.wallet_low_usd} />
      <Notices />
      {adding && <AddChannel about={about.data} onClose={() => setAdding(false)} onMade={(made) => {
        setAdding(false)
        if (made.secret) setSecret(made)
      }} />}
      {open && <ChannelDrawer about={about.data} of={channels.data?.data.find((one) => one.id === open.id) ?? open}
        onClose={() => setOpen(undefined)} onSecret={setSecret} />}
      {secret?.secret && (
        <Secret open onClose={() => setSecret(undefined)} title="The webhook’s secret" secret={secret.secret}
          text="Your server checks each call’s webhook-signature with it. It is shown now and never again."
          snippetTitle="Checking a call in Python (pip install standardwebhooks)"
          snippet={'from standardwebhooks import Webhook\nWebhook("whsec_…").verify(body, headers)   # raises if it is not ours'} />
      )}
    </>
  )
}

function Kinds({ about, value, onChange }: { about: Shape; value: string[]; onChange: (kinds: string[]) => void }) {
  return (
    <fieldset className="space-y-1.5">
      <legend className="mb-1 text-sm font-medium">What it is told</legend>
      {about.kinds.map((row) => (
        <label key={row.kind} className="flex gap-2 text-sm">
          <input type="checkbox" className="mt-1 accent-accent" checked={value.includes(row.kind)}
            onChange={(event) => onChange(event.target.checked ? [...value, row.kind] : value.filter((kind) => kind !== row.kind))} />
          <span>{row.kind}<span className="block text-xs text-faint">{row.when}</span></span>
        </label>
      ))}
    </fieldset>
  )
}

function AddChannel({ about, onClose, onMade }: { about: Shape; onClose: () => void; onMade: (made: Channel) => void }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const [type, setType] = useState<Channel['type']>('webhook')
  const [address, setAddress] = useState('')
  const [kinds, setKinds] = useState(about.kinds.map((row) => row.kind))
  const make = useMutation({
    mutationFn: () => call<Channel>(ws, 'POST', '/channels', { body: { type, address: address.trim(), kinds } }),
    onSuccess: (made) => {
      void client.invalidateQueries({ queryKey: ['channels', ws] })
      onMade(made)
    },
  })
  return (
    <Dialog open onClose={onClose} title="New channel" footer={<>
      <Button onClick={onClose}>Cancel</Button>
      <Button look="primary" disabled={!address.trim() || kinds.length === 0} busy={make.isPending} onClick={() => make.mutate()}>Make it</Button>
    </>}>
      <div className="space-y-3">
        <SelectField label="Kind" value={type} onChange={(value) => setType(value as Channel['type'])}
          hint={about.email ? undefined : 'E-mail is not configured on this server: ask its operator'}
          options={about.email ? ['webhook', 'email'] : ['webhook']} />
        <TextField label={type === 'email' ? 'E-mail' : 'URL'} type={type === 'email' ? 'email' : 'url'} value={address} autoFocus
          placeholder={type === 'email' ? 'oncall@example.com' : 'https://example.com/hooks/sovereign'}
          hint={type === 'webhook' ? 'A public http or https address; addresses inside of networks are refused' : undefined}
          onChange={(event) => setAddress(event.target.value)} />
        <Kinds about={about} value={kinds} onChange={setKinds} />
        {make.error && <Refusal error={make.error} />}
      </div>
    </Dialog>
  )
}

const deliveryColumns = (again: (one: Delivery) => void): Column<Delivery>[] => [
  { id: 'at', header: 'When', width: '110px', cell: (one) => <Time value={one.created_at} relative /> },
  { id: 'kind', header: 'Kind', width: 'minmax(110px,1fr)', cell: (one) => one.kind, card: 'title' },
  { id: 'state', header: 'State', width: '90px', cell: (one) => <Status value={one.state} />, card: 'title' },
  { id: 'error', header: 'Last error', width: 'minmax(120px,2fr)', cell: (one) => <span title={one.last_error}>{one.last_error ?? ''}</span> },
  {
    id: 'again', header: 'Deliver', width: '90px', right: true, card: 'none',
    cell: (one) => one.state === 'pending' ? <Time value={one.next_attempt_at} relative /> : <Button small onClick={() => again(one)}>Again</Button>,
  },
]

function ChannelDrawer({ of, about, onClose, onSecret }:
  { of: Channel; about: Shape; onClose: () => void; onSecret: (made: Channel) => void }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell, fail } = useToast()
  const [kinds, setKinds] = useState(of.kinds)
  const [asking, setAsking] = useState<'delete' | 'rotate'>()
  const deliveries = useQuery({
    queryKey: ['deliveries', ws, of.id], refetchInterval: 5000,
    queryFn: ({ signal }) => call<List<Delivery>>(ws, 'GET', `/channels/${of.id}/deliveries`, { query: { limit: 50 }, signal }),
  })
  const read = () => Promise.all([
    client.invalidateQueries({ queryKey: ['channels', ws] }), client.invalidateQueries({ queryKey: ['deliveries', ws, of.id] }),
  ])
  const act = useMutation({
    mutationFn: ({ method, path, body }: { method: 'POST' | 'PATCH'; path: string; body?: unknown; said: string }) =>
      call(ws, method, `/channels/${of.id}${path}`, { body }),
    onSuccess: async (_, { said }) => {
      await read()
      tell(said)
    },
    onError: fail,
  })
  return (
    <Drawer open onClose={onClose} title={of.address} text={of.type} footer={<>
      <Button look="danger" onClick={() => setAsking('delete')}>Delete</Button>
      {of.type === 'webhook' && <Button onClick={() => setAsking('rotate')}>New secret</Button>}
      <Button look="primary" busy={act.isPending} onClick={() => act.mutate({ method: 'POST', path: '/test', said: 'A test is on its way' })}>Send a test</Button>
    </>}>
      <div className="space-y-4">
        {of.disabled_reason && <p className="rounded-md bg-warn-ground p-2 text-sm">{of.disabled_reason}</p>}
        <Switch label="On" on={of.enabled} onChange={(enabled) =>
          act.mutate({ method: 'PATCH', path: '', body: { enabled }, said: enabled ? 'The channel is on' : 'The channel is off' })} />
        <Kinds about={about} value={kinds} onChange={setKinds} />
        <Button disabled={[...kinds].sort().join() === [...of.kinds].sort().join()}
          onClick={() => act.mutate({ method: 'PATCH', path: '', body: { kinds }, said: 'Saved' })}>Save the kinds</Button>
        <Section title="Deliveries of the last 30 days" flush>
          {deliveries.error && <Refusal error={deliveries.error} />}
          {deliveries.data?.data.length === 0 && <p className="px-3.5 py-3 text-sm text-soft">Nothing was sent yet. Send a test.</p>}
          {deliveries.data && deliveries.data.data.length > 0 && (
            <Table label="Deliveries" rows={deliveries.data.data} rowKey={(one) => one.id} columns={deliveryColumns((one) =>
              act.mutate({ method: 'POST', path: `/deliveries/${one.id}/redelivery`, said: 'It is delivered again' }))} />
          )}
        </Section>
      </div>
      <Confirm open={asking === 'delete'} onClose={() => setAsking(undefined)} danger action="Delete" title="Delete the channel?"
        text="Nothing goes there any more, and its deliveries are forgotten." run={async () => {
          await call(ws, 'DELETE', `/channels/${of.id}`)
          onClose()
          await client.invalidateQueries({ queryKey: ['channels', ws] })
        }} />
      <Confirm open={asking === 'rotate'} onClose={() => setAsking(undefined)} action="Make another" title="Give it another secret?"
        text="Calls are signed with the new one from then on; the old one no longer fits." run={async () => {
          onSecret(await call<Channel>(ws, 'POST', `/channels/${of.id}/secret`))
        }} />
    </Drawer>
  )
}

function LowWallet({ low }: { low: number }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const [text, setText] = useState(String(low))
  const put = async (amount: number) => client.setQueryData(['notifications', ws],
    await call<Shape>(ws, 'PATCH', '/notifications', { body: { wallet_low_usd: amount } }))
  const save = useMutation({
    mutationFn: () => put(Number(text)),
    onSuccess: () => tell('Saved', { undo: () => put(low) }),
  })
  const wrong = /^\d+(\.\d{1,9})?$/.test(text) ? undefined : 'Must be an amount'
  return (
    <Section title="A low wallet">
      <form className="flex flex-wrap items-end gap-2" onSubmit={(event) => {
        event.preventDefault()
        save.mutate()
      }}>
        <TextField label="Low is below, $" className="basis-80" inputMode="decimal" value={text} disabled={!may} error={wrong}
          hint="0 for never; told once each time it is crossed" onChange={(event) => setText(event.target.value.trim())} />
        <Button type="submit" className="mb-5" title={why} disabled={!may || Boolean(wrong) || Number(text) === low} busy={save.isPending}>Save</Button>
      </form>
      {save.error && <Refusal error={save.error} />}
    </Section>
  )
}

/** The title, as a link to the page of what it is about. */
function Title({ of }: { of: Notice }) {
  const [page = '', query = ''] = of.link.replace(/^\//, '').split('?')
  return hasPage({ page, query }) ? <A to={page} query={parseSearch(query)}>{of.title}</A> : of.title
}

function Notices() {
  const ws = useWorkspaceId()
  const list = useQuery({
    queryKey: ['notices', ws], queryFn: ({ signal }) => call<List<Notice>>(ws, 'GET', '/notices', { query: { limit: 50 }, signal }),
  })
  return (
    <Section title="Notices" flush aside="of the last 30 days">
      {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
      {list.isPending && <div className="p-3"><SkeletonLines lines={2} /></div>}
      {list.data?.data.length === 0 && <p className="px-3.5 py-3 text-sm text-soft">Nothing yet: alarms of the wallet, budgets, gates, anchors and judges come here.</p>}
      <ul>
        {list.data?.data.map((one) => (
          <li key={one.id} className="border-b border-line px-3.5 py-2 text-sm last:border-0">
            <p className="flex flex-wrap items-baseline gap-x-3"><span className="min-w-0 flex-1 font-medium break-words"><Title of={one} /></span>
              <span className="text-xs text-faint">{one.kind} · <Time value={one.at} relative /></span></p>
            <p className="break-words whitespace-pre-wrap text-soft">{one.text}</p>
          </li>
        ))}
      </ul>
    </Section>
  )
}
