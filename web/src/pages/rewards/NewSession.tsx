import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { call, data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import type { components } from '../../api/v1'
import { useToast } from '../../app/Toasts'
import { useCriteria } from '../aliases/EditAlias'
import { money } from '../../format'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Dialog } from '../../ui/Dialog'
import { SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'
import { Price } from '../../ui/Values'

type Body = components['schemas']['NewRewardSession']

const tiers = ['none', 'provisional', 'measured', 'calibrated', 'certified']
const atLeast = (trust: string, least: string) => tiers.indexOf(trust) >= tiers.indexOf(least)

/** Begins a session. Its budget is held from the wallet until it ends; what is left of it comes back. */
export function NewSession({ onClose, onMade }: { onClose: () => void; onMade: (id: string) => void }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const all = useCriteria().data?.data ?? []
  const judges = all.filter((one) => atLeast(one.trust, 'measured'))
  const wallet = useQuery({ queryKey: ['wallet', ws], queryFn: ({ signal }) => call<{ free_usd: number }>(ws, 'GET', '/wallet', { signal }) })
  const [form, setForm] = useState({ label: '', budget: '5', mode: 'single' as 'single' | 'weighted' | 'all', judges: [] as string[], anchor: '', every: '256', sample: '64', hours: '24', agentic: false })
  const set = (change: Partial<typeof form>) => setForm({ ...form, ...change })
  const used = all.filter((one) => form.judges.includes(one.id))
  const anchors = all.filter((one) => atLeast(one.trust, 'calibrated') && !form.judges.includes(one.id)
    && !used.some((judge) => judge.judge_model === one.judge_model))
  const body: Body = {
    ...(form.label.trim() && { label: form.label.trim() }), budget_usd: Number(form.budget), expires_in_seconds: Math.round(Number(form.hours) * 3600), ...(form.agentic && { agentic: true }),
    reward: form.mode === 'single' ? { mode: 'single', criterionId: form.judges[0] ?? '' }
      : { mode: form.mode, criteria: form.judges.map((criterionId) => ({ criterionId })) },
    ...(form.anchor && { anchor: { criterion_id: form.anchor, every: Number(form.every), sample_size: Number(form.sample) } }),
  }
  const make = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/reward/sessions', { body })),
    onSuccess: (made) => {
      void client.invalidateQueries({ queryKey: ['reward-sessions', ws] })
      void client.invalidateQueries({ queryKey: ['wallet', ws] })
      tell('The session scores now', { text: `${money(made.budget_usd)} of the wallet is held for it.` })
      onMade(made.id)
    },
  })
  const isAmount = /^\d+(\.\d{1,9})?$/.test(form.budget) && Number(form.budget) > 0
  const free = wallet.data?.free_usd
  const ready = isAmount && form.judges.length > 0 && Number(form.hours) > 0
  const pick = (id: string, on: boolean) => set({ judges: form.mode === 'single' ? (on ? [id] : []) : on ? [...form.judges, id] : form.judges.filter((one) => one !== id), anchor: '' })
  return (
    <Dialog open wide onClose={onClose} title="New reward session" text="Its judges’ certificates are pinned when it begins." footer={<>
      <span className="mr-auto"><Price usd={isAmount ? Number(form.budget) : null} upTo /></span>
      <CurlButton call={{ method: 'POST', path: '/v1/reward/sessions', body }} small={false} />
      <Button onClick={onClose}>Cancel</Button>
      <Button look="primary" disabled={!ready} busy={make.isPending} onClick={() => make.mutate()}>Hold the budget and begin</Button>
    </>}>
      <div className="space-y-4">
        <div className="grid gap-3 sm:grid-cols-2">
          <TextField label="Label" maxLength={200} value={form.label} onChange={(event) => set({ label: event.target.value })} />
          <TextField label="Budget, $" inputMode="decimal" value={form.budget} onChange={(event) => set({ budget: event.target.value.trim() })}
            error={!isAmount ? 'Must be an amount' : free !== undefined && Number(form.budget) > free ? `The wallet has ${money(free)} free` : undefined}
            hint={free === undefined ? undefined : `${money(free)} is free; what is not spent comes back`} />
        </div>
        <SelectField label="How judges make a reward" value={form.mode} onChange={(mode) => set({ mode: mode as typeof form.mode, judges: form.judges.slice(0, mode === 'single' ? 1 : undefined) })}
          options={[{ value: 'single', label: 'One judge' }, { value: 'weighted', label: 'Several, as a mean' }, { value: 'all', label: 'Several: all must pass' }]} />
        <fieldset>
          <legend className="mb-1 text-sm font-medium">Judges</legend>
          {judges.length === 0 && <p className="text-sm text-soft">None has the tier measured yet: grade and calibrate one in <A to="judges">Judges</A>.</p>}
          {judges.map((one) => (
            <label key={one.id} className="flex gap-2 py-0.5 text-sm">
              <input type={form.mode === 'single' ? 'radio' : 'checkbox'} name="judge" className="mt-1 accent-accent" checked={form.judges.includes(one.id)}
                onChange={(event) => pick(one.id, event.target.checked)} />
              <span>{one.name}<span className="text-xs text-faint"> · {one.trust} · {one.judge_model}</span></span>
            </label>
          ))}
        </fieldset>
        <SelectField label="Anchor" value={form.anchor} onChange={(anchor) => set({ anchor })}
          hint="Another judge, by another model, of the tier calibrated: it holds the session when the run pleases the judge instead of people"
          options={[{ value: '', label: anchors.length ? 'None' : 'None fits' }, ...anchors.map((one) => ({ value: one.id, label: `${one.name} · ${one.judge_model}` }))]} />
        {form.anchor && (
          <div className="grid gap-3 sm:grid-cols-2">
            <TextField label="A check after this many scored" type="number" min={1} value={form.every} onChange={(event) => set({ every: event.target.value })} />
            <TextField label="Completions of a check" type="number" min={1} value={form.sample} onChange={(event) => set({ sample: event.target.value })} />
          </div>
        )}
        <TextField label="It is stopped after, hours" type="number" min={1} value={form.hours} onChange={(event) => set({ hours: event.target.value })}
          hint="At the latest; so that a forgotten session does not hold money" />
        <Switch label="Completions are trajectories" hint="Messages with tool calls and results" on={form.agentic} onChange={(agentic) => set({ agentic })} />
        {make.error && <Refusal error={make.error} />}
      </div>
    </Dialog>
  )
}
