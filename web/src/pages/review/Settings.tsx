import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { call } from '../../api/client'
import { useToast } from '../../app/Toasts'
import { plural } from '../../format'
import { Button } from '../../ui/Button'
import { Confirm } from '../../ui/Dialog'
import { Field, SelectField, TextField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'
import { Facts, Time } from '../../ui/Values'
import type { Queue, Source } from './api'
import { describeSource, SourceFields, usePreview } from './SourceFields'

/** Changes a queue, adds items, closes or deletes it. */
export function Settings({ ws, queue }: { ws: string; queue: Queue }) {
  const queries = useQueryClient()
  const { tell } = useToast()
  const [form, setForm] = useState({
    name: queue.name, instructions: queue.instructions, graders: String(queue.graders_per_item), blind: queue.blind, lease: String(queue.lease_minutes),
  })
  const refresh = () => Promise.all([
    queries.invalidateQueries({ queryKey: ['queue', ws, queue.id] }), queries.invalidateQueries({ queryKey: ['queues', ws] }),
  ])
  const save = useMutation({
    mutationFn: (body: Record<string, unknown>) => call<Queue>(ws, 'PATCH', `/queues/${queue.id}`, { body }),
    onSuccess: async (_, body) => {
      await refresh()
      tell('closed' in body ? (body.closed ? 'Queue closed' : 'Queue opened') : 'Saved')
    },
  })
  return (
    <div className="grid items-start gap-x-4 lg:grid-cols-2">
      <div className="min-w-0">
        <Section title="Settings">
          <form className="space-y-3" onSubmit={(event) => {
            event.preventDefault()
            save.mutate({
              name: form.name.trim(), instructions: form.instructions, graders_per_item: Number(form.graders), blind: form.blind, lease_minutes: Number(form.lease),
            })
          }}>
            <TextField label="Name" required maxLength={100} value={form.name} onChange={(e) => setForm({ ...form, name: e.target.value })} />
            <Field label="Instructions" hint="What graders are told beside the rubric">
              {(props) => <textarea {...props} rows={4} maxLength={8000} className="control w-full" value={form.instructions} onChange={(e) => setForm({ ...form, instructions: e.target.value })} />}
            </Field>
            <div className="grid gap-3 sm:grid-cols-2">
              <SelectField label="Graders per item" hint="Two or more tell how far people agree" value={form.graders} options={['1', '2', '3', '4', '5']} onChange={(graders) => setForm({ ...form, graders })} />
              <TextField label="A claim is kept for (minutes)" type="number" min={1} max={1440} required value={form.lease} onChange={(e) => setForm({ ...form, lease: e.target.value })} />
            </div>
            <Switch label="Blind" hint="Graders do not see what the judge said" on={form.blind} onChange={(blind) => setForm({ ...form, blind })} />
            {save.error && <Refusal error={save.error} />}
            <Button type="submit" look="primary" busy={save.isPending}>Save</Button>
          </form>
        </Section>
        <Section title="About">
          <Facts rows={[
            ['Made from', describeSource(queue.source)],
            ['Made', <Time key="t" value={queue.created_at} />],
            ['Last filled', queue.fill ? `${queue.fill.status.toLowerCase()}, ${plural(queue.fill.added, 'item')} added${queue.fill.missing ? `, ${queue.fill.missing} not logged` : ''}` : '–'],
          ]} />
          {queue.fill?.error && <p className="mt-2 text-sm text-fail">{queue.fill.error}</p>}
        </Section>
      </div>
      <div className="min-w-0">
        <AddItems ws={ws} queue={queue} onDone={refresh} />
        <Close ws={ws} queue={queue} setClosed={(closed) => save.mutate({ closed })} />
      </div>
    </div>
  )
}

function AddItems({ ws, queue, onDone }: { ws: string; queue: Queue; onDone: () => Promise<unknown> }) {
  const { tell } = useToast()
  const [source, setSource] = useState<Source>({ kind: 'logs', n: 20 })
  const preview = usePreview(ws, source, queue.criterion_id ?? '')
  const add = useMutation({
    mutationFn: () => call<Queue>(ws, 'POST', `/queues/${queue.id}/items`, { body: source }),
    onSuccess: async () => {
      await onDone()
      tell('Items are being added')
    },
  })
  return (
    <Section title="Add items" aside="what is in the queue already stays as it is">
      <form className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        add.mutate()
      }}>
        <SourceFields ws={ws} source={source} onChange={setSource} criterion={queue.criterion_id ?? ''} />
        <p className="text-sm text-soft" aria-live="polite">{preview}</p>
        {add.error && <Refusal error={add.error} />}
        <Button type="submit" busy={add.isPending}>Add</Button>
      </form>
    </Section>
  )
}

function Close({ ws, queue, setClosed }: { ws: string; queue: Queue; setClosed: (closed: boolean) => void }) {
  const navigate = useNavigate()
  const queries = useQueryClient()
  const { tell } = useToast()
  const [deleting, setDeleting] = useState(false)
  return (
    <Section title="End">
      <p className="text-sm text-soft">Nobody grades in a closed queue; it can be opened again. Its labels stay in any case.</p>
      <div className="mt-3 flex gap-2">
        <Button onClick={() => setClosed(!queue.closed_at)}>{queue.closed_at ? 'Open again' : 'Close'}</Button>
        <Button look="danger" onClick={() => setDeleting(true)}>Delete…</Button>
      </div>
      <Confirm open={deleting} onClose={() => setDeleting(false)} danger title="Delete the queue" action="Delete" typedName={queue.name}
        text="Its items, claims and grants are deleted. The labels that were made in it stay. This cannot be undone."
        run={async () => {
          await call(ws, 'DELETE', `/queues/${queue.id}`, { query: { purge: true } })
          queries.removeQueries({ queryKey: ['queue', ws, queue.id] })
          await queries.invalidateQueries({ queryKey: ['queues', ws] })
          tell('Queue deleted')
          void navigate({ to: `/w/${ws}/review` as never })
        }} />
    </Section>
  )
}
