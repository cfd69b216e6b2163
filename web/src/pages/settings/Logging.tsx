import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { CheckIcon, XIcon } from 'lucide-react'
import { useEffect, useState } from 'react'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { ReadOnly, useAllowed } from '../../ui/Allowed'
import { Badge } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { Confirm } from '../../ui/Dialog'
import { SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'
import { SkeletonLines } from '../../ui/Values'
import type { Settings } from './shapes'

export function useSettings() {
  const ws = useWorkspaceId()
  return useQuery({ queryKey: ['settings', ws], queryFn: ({ signal }) => call<Settings>(ws, 'GET', '/settings', { signal }) })
}

/** Changes settings, says so, and offers to undo it. */
export function useSetSettings() {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell, fail } = useToast()
  const put = async (change: Partial<Settings>) =>
    client.setQueryData(['settings', ws], await call<Settings>(ws, 'PATCH', '/settings', { body: change }))
  return useMutation({
    mutationFn: ({ change }: { change: Partial<Settings>; said: string; undo?: Partial<Settings> }) => put(change),
    onSuccess: (_, { said, undo }) => {
      void client.invalidateQueries({ queryKey: ['setup', ws] })
      tell(said, { undo: undo && (() => put(undo)) })
    },
    onError: fail,
  })
}

const kept = [
  'Messages and tools as they were sent, and the assistant’s answer',
  'Tokens, cost, latency, model, alias, tag, trace and segment',
  'The day on which the row is deleted: it is fixed when the row is written',
]
const never = [
  'Credentials: they are replaced by [redacted] before a row is written anywhere',
  'Errors, broken streams, and streams whose caller left',
  'Embeddings, rerank, responses, and the product’s own requests',
  'Requests with the header X-Service-Log: off, and exchanges over 512 KB',
]

/** The consent to keep exchanges: what is kept, what never is, for how long. */
export function Logging() {
  const settings = useSettings()
  const change = useSetSettings()
  const { may, why } = useAllowed()
  const [asking, setAsking] = useState<'on' | 'off'>()
  const [days, setDays] = useState('30')
  if (settings.error) return <Refusal error={settings.error} retry={() => void settings.refetch()} />
  if (!settings.data) return <SkeletonLines />
  const { log_retention_days: retention } = settings.data
  const isOn = retention > 0
  return (
    <>
      <Section title="Request logging" aside={<Badge tone={isOn ? 'pass' : 'neutral'}>{isOn ? `on, ${retention} days` : 'off'}</Badge>}>
        <ReadOnly />
        <div className="space-y-4">
          <div className="flex flex-wrap items-end gap-4">
            <Switch label={isOn ? 'Chat exchanges are kept' : 'Nothing is kept'} on={isOn} disabled={!may || change.isPending}
              hint="Judges, datasets, evals from logs and canaries need it" onChange={(on) => setAsking(on ? 'on' : 'off')} />
            {isOn && (
              <SelectField label="For how long" value={String(retention)} disabled={!may || change.isPending} title={why} options={periods}
                onChange={(next) => change.mutate({
                  change: { log_retention_days: Number(next) }, said: `New rows are kept for ${next} days`,
                  undo: { log_retention_days: retention },
                })} />
            )}
          </div>
          <div className="grid gap-4 sm:grid-cols-2">
            <Kept title="What is kept" items={kept} yes />
            <Kept title="What never is" items={never} />
          </div>
          {isOn && <p className="text-sm"><A to="logs">Look at the logs</A></p>}
        </div>
      </Section>
      <Confirm open={asking === 'on'} onClose={() => setAsking(undefined)} title="Keep chat exchanges?" action="Turn logging on"
        text="Everyone in this workspace will be able to read what is sent and answered from now on. Tell those whose requests these are."
        run={() => change.mutateAsync({
          change: { log_retention_days: Number(days) }, said: 'Requests that begin now are logged', undo: { log_retention_days: 0 },
        })}>
        <SelectField label="For how long" value={days} onChange={setDays} options={periods} />
      </Confirm>
      <Confirm open={asking === 'off'} onClose={() => setAsking(undefined)} title="Keep nothing more?" action="Turn logging off" danger
        text="Requests that end from now on are not kept. What was kept cannot be read while logging is off, and is deleted on its day all the same. Gates of canaries pause."
        run={() => change.mutateAsync({
          change: { log_retention_days: 0 }, said: 'Logging is off', undo: { log_retention_days: retention },
        })} />
    </>
  )
}

const periods = [7, 30, 90].map((n) => ({ value: String(n), label: `${n} days` }))

function Kept({ title, items, yes }: { title: string; items: string[]; yes?: boolean }) {
  return (
    <div>
      <h3 className="mb-1 text-sm font-medium">{title}</h3>
      <ul className="space-y-1 text-sm text-soft">
        {items.map((item) => (
          <li key={item} className="flex gap-2">
            {yes ? <CheckIcon size={14} className="mt-1 shrink-0 text-pass" aria-hidden /> : <XIcon size={14} className="mt-1 shrink-0 text-fail" aria-hidden />}
            <span>{item}</span>
          </li>
        ))}
      </ul>
    </div>
  )
}

/** The cache, and the tokens of requests that name no maximum. */
export function Defaults() {
  const settings = useSettings()
  const change = useSetSettings()
  const { may } = useAllowed()
  const stored = settings.data?.default_max_tokens
  const [tokens, setTokens] = useState('')
  useEffect(() => setTokens(stored ? String(stored) : ''), [stored])
  if (!settings.data) return null
  const wrong = tokens !== '' && !/^\d{1,9}$/.test(tokens) ? 'Must be a whole number' : undefined
  const next = Number(tokens || 0)
  return (
    <Section title="Requests">
      <ReadOnly />
      <div className="space-y-4">
        <Switch label="Cache" on={settings.data.cache} disabled={!may || change.isPending}
          hint="Answers are remembered for an hour, and given again to the same question. A request can say otherwise with X-Service-Cache."
          onChange={(cache) => change.mutate({ change: { cache }, said: cache ? 'The cache is on' : 'The cache is off, and emptied', undo: { cache: !cache } })} />
        <form className="flex flex-wrap items-end gap-2" onSubmit={(event) => {
          event.preventDefault()
          change.mutate({ change: { default_max_tokens: next }, said: 'Saved', undo: { default_max_tokens: stored } })
        }}>
          <TextField label="Output tokens of a request that names no maximum" className="min-w-0 flex-1 basis-64" inputMode="numeric"
            placeholder="the server’s default" disabled={!may} value={tokens} error={wrong}
            hint="It is sent to the provider, and lowers what a request holds of the wallet" onChange={(event) => setTokens(event.target.value.trim())} />
          <Button type="submit" className="mb-5" disabled={!may || Boolean(wrong) || next === stored} busy={change.isPending}>Save</Button>
        </form>
      </div>
    </Section>
  )
}
