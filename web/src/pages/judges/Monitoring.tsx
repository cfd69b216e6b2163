import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { count } from '../../format'
import { Badge } from '../../ui/Badge'
import { Button, buttonClass } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Facts, Money, SkeletonLines, Time } from '../../ui/Values'
import { monitoringQuery, type Judge } from './api'
import { RatesView } from './Rates'
import { notYours } from './runs'

/** The judge grades a share of new traffic, and gives an alarm when too little passes. */
export function Monitoring({ ws, judge }: { ws: string; judge: Judge }) {
  const read = useQuery(monitoringQuery(ws, judge.id))
  if (read.error) return <Refusal error={read.error} retry={() => void read.refetch()} />
  if (!read.data) return <SkeletonLines />
  const m = read.data
  return (
    <div className="grid items-start gap-x-4 lg:grid-cols-2">
      <div className="min-w-0">
        {m.alarm && <div role="alert" className="mb-4 rounded-md border border-fail/40 bg-fail-ground px-3.5 py-2.5 text-sm"><strong>Alert</strong> since <Time value={m.alarm.at} />: {m.alarm.reason}. Saving the settings begins a new window and clears it.</div>}
        <Section title="This window" actions={<CurlButton call={{ path: `/v1/criteria/${judge.id}/monitoring` }} />}>
          {m.enabled || m.rates.n > 0 ? <>
            <RatesView rates={m.rates} judge={judge.id} />
            <div className="mt-3"><Facts rows={[
              ['Since', <Time key="s" value={m.since} />], ['Exchanges seen', count(m.seen)],
              ['Spent in it', <span key="m"><Money usd={m.spent_usd} />{m.exhausted && <Badge tone="warn">the bound is reached</Badge>}</span>], ['Spent in all', <Money key="a" usd={m.cost_usd} />],
            ]} /></div>
            <div className="mt-3"><A to="review" query={{ new: 'true', criterion: judge.id, kind: 'uncertain' }} className={buttonClass()}>Have people grade the least sure…</A></div>
          </> : <p className="text-sm text-soft">Monitoring is off. Turned on, the judge grades a share of each newly logged exchange, and the alert is an e-process: at most 5 % false alerts in a window, however often it looks.</p>}
        </Section>
      </div>
      <div className="min-w-0"><Settings key={JSON.stringify(judge.monitoring)} ws={ws} judge={judge} enabled={m.enabled} /></div>
    </div>
  )
}

function Settings({ ws, judge, enabled }: { ws: string; judge: Judge; enabled: boolean }) {
  const { manages } = useWorkspace()
  const queries = useQueryClient()
  const { tell } = useToast()
  const was = judge.monitoring
  const [form, setForm] = useState({
    percent: String(was?.sample_percent ?? 10), below: was?.alert_below === undefined ? '0.9' : String(was.alert_below), hours: String(was?.window_hours ?? 24),
    most: was?.max_cost_usd === undefined ? '' : String(was.max_cost_usd),
  })
  const body = {
    enabled: true, sample_percent: Number(form.percent), window_hours: Number(form.hours),
    ...(form.below && { alert_below: Number(form.below) }), ...(form.most && { max_cost_usd: Number(form.most) }),
  }
  const refresh = () => Promise.all(['monitoring', 'criterion', 'criteria'].map((key) => queries.invalidateQueries({ queryKey: [key, ws] })))
  const save = useMutation({
    mutationFn: () => data(v1(ws).PUT('/v1/criteria/{id}/monitoring', { params: { path: { id: judge.id } }, body })),
    onSuccess: async () => {
      await refresh()
      tell('Monitoring is on', { text: 'A new window has begun.' })
    },
  })
  const stop = useMutation({
    mutationFn: () => data(v1(ws).DELETE('/v1/criteria/{id}/monitoring', { params: { path: { id: judge.id } } })),
    onSuccess: async () => {
      await refresh()
      tell('Monitoring is off', { undo: () => save.mutateAsync() })
    },
  })
  const set = (change: Partial<typeof form>) => setForm({ ...form, ...change })
  return (
    <Section title="Settings" actions={<CurlButton call={{ method: 'PUT', path: `/v1/criteria/${judge.id}/monitoring`, body }} />}>
      <form className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        save.mutate()
      }}>
        <div className="grid gap-3 sm:grid-cols-2">
          <TextField label="Share of traffic (%)" type="number" min={0.01} max={100} step="any" required value={form.percent} onChange={(e) => set({ percent: e.target.value })} />
          <TextField label="Alert below" hint="the share that passes, 0 to 1; empty: never" type="number" min={0} max={1} step="any" value={form.below} onChange={(e) => set({ below: e.target.value })} />
          <TextField label="Window (hours)" type="number" min={1} max={720} required value={form.hours} onChange={(e) => set({ hours: e.target.value })} />
          <TextField label="At most per window (USD)" hint="each graded exchange is a paid call of the judge" type="number" min={0} step="any" value={form.most} onChange={(e) => set({ most: e.target.value })} />
        </div>
        {(save.error ?? stop.error) && <Refusal error={save.error ?? stop.error} />}
        <div className="flex gap-2">
          <Button type="submit" look="primary" disabled={!manages} title={manages ? undefined : notYours} busy={save.isPending}>{enabled ? 'Save, and begin a new window' : 'Turn on'}</Button>
          {enabled && <Button disabled={!manages} busy={stop.isPending} onClick={() => stop.mutate()}>Turn off</Button>}
        </div>
      </form>
    </Section>
  )
}
