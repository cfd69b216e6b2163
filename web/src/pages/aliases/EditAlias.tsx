import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { asApiError } from '../../api/errors'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { usePolicy } from '../settings/Evidence'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Dialog } from '../../ui/Dialog'
import { SelectField, TextField } from '../../ui/Field'
import { catalogOf, ModelPicker, ModelsPicker, useModels } from '../../ui/ModelPicker'
import { Refusal } from '../../ui/Refusal'
import { toPut, unprovenOf, type Alias, type PutAlias } from './gate'
import { Proof } from './Proof'

interface Props {
  /** None for a new one. */
  alias?: Alias
  onClose: () => void
  onDone?: (alias: Alias) => void
  /** What is filled in already, such as the canary as the target. */
  change?: Partial<PutAlias>
}

export function useCriteria() {
  const ws = useWorkspaceId()
  return useQuery({
    queryKey: ['criteria', ws],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria', { params: { query: { limit: 200 } }, signal })),
  })
}

/** Puts an alias, tells so, and offers the state before as the undo. */
export function usePutAlias(before?: Alias) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const send = async (body: PutAlias) => {
    const made = await data(v1(ws).PUT('/v1/aliases', { body }))
    await Promise.all(['aliases', 'alias', 'gate', 'history'].map((name) => client.invalidateQueries({ queryKey: [name, ws] })))
    return made
  }
  return useMutation({
    mutationFn: send,
    onSuccess: (made) => tell(`${made.name} is in force`, {
      text: made.canary_percent ? `${100 - made.canary_percent} % ${made.target_model}, ${made.canary_percent} % ${made.canary_model}` : made.target_model,
      undo: before && (() => send(toPut(before))),
    }),
  })
}

const gateDefaults = {
  gate_mode: 'recommend' as const, gate_min_samples: 50, gate_rollback_threshold: 0.05, gate_window_hours: 168,
  gate_sample_percent: 100, gate_max_cost_usd: 10,
}

export function EditAlias({ alias, onClose, onDone, change }: Props) {
  const models = catalogOf(useModels().data).filter((model) => !model.id.startsWith('dedicated/')) // which aliases cannot point at
  const [form, setForm] = useState<PutAlias>(() => ({ ...(alias ? toPut(alias) : { name: '', target_model: '', canary_percent: 0 }), ...change }))
  const set = (part: Partial<PutAlias>) => setForm((now) => ({ ...now, ...part }))
  const put = usePutAlias(alias)
  const policy = usePolicy().data
  const body = clean(form)
  const hasCanary = Boolean(form.canary_model)
  const unproven = put.error ? unprovenOf(asApiError(put.error).body) : undefined
  const moves = alias && (alias.target_model !== form.target_model || (form.canary_percent ?? 0) > (policy?.max_unproven_canary_percent ?? 100))
  return (
    <Dialog open wide onClose={onClose} title={alias ? `Change ${alias.name}` : 'New alias'}
      text="It is in force when the answer comes. The change is audited, before and after." footer={<>
        <CurlButton call={{ method: 'PUT', path: '/v1/aliases', body }} small={false} />
        <Button onClick={onClose}>Cancel</Button>
        <Button look="primary" busy={put.isPending} disabled={!form.name || !form.target_model}
          onClick={() => put.mutate(body, { onSuccess: (made) => {
            onClose()
            onDone?.(made)
          } })}>{alias ? 'Put in force' : 'Make the alias'}</Button>
      </>}>
      <div className="space-y-4">
        {!alias && (
          <TextField label="Name" autoFocus maxLength={64} spellCheck={false} value={form.name} onChange={(event) => set({ name: event.target.value.trim() })}
            hint="3 to 64 letters, digits, dots, dashes or underscores; programs call it as a model" />
        )}
        <ModelPicker label="Target" value={form.target_model} onChange={(target_model) => set({ target_model })} models={models}
          hint="The model that answers" />
        <div className="grid gap-3 sm:grid-cols-[1fr_140px]">
          <ModelPicker label="Canary" optional value={form.canary_model ?? ''} models={models}
            onChange={(canary_model) => set({ canary_model, ...(canary_model === '' && { canary_percent: 0 }) })} />
          <TextField label="Percent to it" type="number" min={0} max={100} value={form.canary_percent ?? 0} disabled={!hasCanary}
            hint="0 rolls back, 100 cuts over" onChange={(event) => set({ canary_percent: Math.round(Number(event.target.value)) })} />
        </div>
        <ModelsPicker label="Fallback models" hint="Tried in this order when the chosen model fails" models={models}
          value={form.fallback_models ?? []} onChange={(fallback_models) => set({ fallback_models })} />
        <TextField label="Description" maxLength={500} value={form.description ?? ''} onChange={(event) => set({ description: event.target.value })} />
        <GateFields form={form} set={set} />
        {moves && policy?.required && !put.error && (
          <p className="rounded-md border border-line bg-raised px-3 py-2 text-sm text-soft">The evidence policy of this workspace asks for a
            proof first: a judge of the tier {policy.min_trust}, at most {policy.max_age_days} days old, that the pass rate falls by
            less than {policy.max_regression}. Without one the server refuses, and says what would prove it.</p>
        )}
        {unproven ? <Proof unproven={unproven} back={alias && unproven.previous_model
          ? () => set({ target_model: unproven.previous_model, canary_percent: 0 }) : undefined} />
          : put.error && <Refusal error={put.error} />}
      </div>
    </Dialog>
  )
}

/** Without a judge there is no gate, and its fields are refused; empty texts are left as they are. */
export function clean(form: PutAlias): PutAlias {
  if (form.gate_criterion_id) return form
  return Object.fromEntries(Object.entries(form).filter(([name]) => !name.startsWith('gate_'))) as PutAlias
}

function GateFields({ form, set }: { form: PutAlias; set: (part: Partial<PutAlias>) => void }) {
  const criteria = useCriteria().data?.data ?? []
  const judge = criteria.find((one) => one.id === form.gate_criterion_id)
  const mayAct = judge && ['calibrated', 'certified'].includes(judge.trust)
  const number = (name: 'gate_min_samples' | 'gate_window_hours' | 'gate_sample_percent' | 'gate_max_cost_usd' | 'gate_rollback_threshold') => ({
    type: 'number', step: 'any', value: form[name] ?? gateDefaults[name],
    onChange: (event: { target: { value: string } }) => set({ [name]: Number(event.target.value) }),
  })
  return (
    <fieldset className="space-y-3 border-t border-line pt-3">
      <legend className="only-read">Gate</legend>
      <SelectField label="Gate: a judge compares the canary with the target" value={form.gate_criterion_id ?? ''}
        hint="It needs request logging. A judge needs at least the tier measured for a verdict, and calibrated to act by itself."
        options={[{ value: '', label: 'No gate' }, ...criteria.map((one) => ({ value: one.id, label: `${one.name} · ${one.trust}` }))]}
        onChange={(id) => set(id ? { ...gateDefaults, ...form, gate_criterion_id: id } : { gate_criterion_id: '' })} />
      {form.gate_criterion_id && (
        <div className="grid gap-3 sm:grid-cols-2">
          <SelectField label="When it has decided" value={form.gate_mode ?? 'recommend'} onChange={(mode) => set({ gate_mode: mode as 'auto' })}
            hint={mayAct ? undefined : 'auto needs a judge of the tier calibrated'}
            options={[{ value: 'recommend', label: 'It shows its verdict' }, { value: 'auto', label: 'It acts on it (auto)' }]} />
          <TextField label="Decrease of the pass rate that is not accepted" hint="0.05 is five points; wider needs fewer samples" {...number('gate_rollback_threshold')} />
          <TextField label="Samples of each model, at least" {...number('gate_min_samples')} />
          <TextField label="Window in hours" hint="Then it is inconclusive" {...number('gate_window_hours')} />
          <TextField label="Percent of the requests that are judged" {...number('gate_sample_percent')} />
          <TextField label="The judge may cost, $" hint="Of an epoch; charged to the wallet as it goes" {...number('gate_max_cost_usd')} />
        </div>
      )}
    </fieldset>
  )
}
