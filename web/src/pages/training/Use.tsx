import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { asApiError } from '../../api/errors'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { useAllowed } from '../../ui/Allowed'
import { Badge } from '../../ui/Badge'
import { Button, buttonClass } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { Dialog } from '../../ui/Dialog'
import { Snippet } from '../../ui/EmptyState'
import { SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { priceText, useModels } from '../../ui/ModelPicker'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { SkeletonLines, Time } from '../../ui/Values'
import { unprovenOf } from '../aliases/gate'
import { Proof } from '../aliases/Proof'
import { snippets } from '../endpoints/endpoint'
import type { Version } from './api'
import { adoptBody, incumbent, provers, type AdoptForm } from './adoption'

/** How a trained model is used: called by its own id, adopted by an alias, or served by engines of its own. */
export function Use({ of }: { of: Version }) {
  const { may, why } = useAllowed()
  const models = useModels()
  const [adopting, setAdopting] = useState(false)
  const served = models.data?.find((model) => model.id === of.name)
  return (
    <Section title="Use it" aside={of.adopted_at ? <>adopted <Time value={of.adopted_at} relative /></> : undefined} actions={<>
      <A to="training" query={{ tab: 'endpoints', new: 'true', model: of.id }} className={buttonClass()}>Serve on own engines</A>
      <Button look="primary" disabled={!may || !served} title={why ?? (served ? undefined : 'It cannot be called')} onClick={() => setAdopting(true)}>Adopt…</Button>
    </>}>
      {models.error && <Refusal error={models.error} retry={() => void models.refetch()} />}
      {models.isPending && <SkeletonLines lines={2} />}
      {served && <>
        <p className="flex flex-wrap items-center gap-x-2 gap-y-1 text-sm"><Badge tone="pass">callable</Badge><Id value={of.name} /><span className="text-soft">{priceText(served)}</span></p>
        <Snippet text={snippets(of.name, location.origin)[0]!.text} />
      </>}
      {models.data && !served && (
        <p className="flex flex-wrap items-center gap-x-2 gap-y-1 text-sm text-soft"><Badge tone="warn">not callable</Badge>
          <span className="min-w-0 flex-1 basis-64">The pool of this server does not serve {of.base_model}: requests to <code className="break-all">{of.name}</code> get 404. The operator can configure
            a pool (serving.pool). A dedicated endpoint serves it on engines of its own, paid by the hour.</span></p>
      )}
      {adopting && <Adopt of={of} onClose={() => setAdopting(false)} />}
    </Section>
  )
}

/** Points an alias at the model. Without a proof the server refuses, and the dialog says what would prove it. */
function Adopt({ of, onClose }: { of: Version; onClose: () => void }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const [form, setForm] = useState<AdoptForm>({ alias: '', percent: '10', evalId: '' })
  const set = (change: Partial<AdoptForm>) => setForm((now) => ({ ...now, ...change }))
  const query = { params: { query: { limit: 200 } } }
  const aliases = useQuery({ queryKey: ['aliases', ws], queryFn: ({ signal }) => data(v1(ws).GET('/v1/aliases', { ...query, signal })) })
  const evals = useQuery({ queryKey: ['evals', ws], queryFn: ({ signal }) => data(v1(ws).GET('/v1/evals', { ...query, signal })) })
  const alias = aliases.data?.data.find((one) => one.name === form.alias)
  const fit = alias ? provers(evals.data?.data ?? [], incumbent(alias), of.name) : []
  const body = adoptBody(form)
  const adopt = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/model-versions/{id}/adopt', { params: { path: { id: of.id } }, body })),
    onSuccess: async (made) => {
      await Promise.all(['aliases', 'alias', 'gate', 'history', 'model-version', 'model-versions', 'home'].map((key) => client.invalidateQueries({ queryKey: [key, ws] })))
      tell(`${made.alias.name} uses it`, { text: `${made.alias.canary_percent} % of its requests go to ${of.name}.` })
      onClose()
    },
  })
  const unproven = adopt.error ? unprovenOf(asApiError(adopt.error).body) : undefined
  const whole = /^\d+$/.test(form.percent) && Number(form.percent) >= 1 && Number(form.percent) <= 100
  return (
    <Dialog open wide onClose={onClose} title={`Adopt ${of.name}`} text="An alias sends a share of its requests to it, on evidence that it is no worse. It is audited, and in force when the answer comes." footer={<>
      <CurlButton call={{ method: 'POST', path: `/v1/model-versions/${of.id}/adopt`, body }} small={false} />
      <Button onClick={onClose}>Cancel</Button>
      <Button look="primary" disabled={!form.alias || !whole} busy={adopt.isPending} onClick={() => adopt.mutate()}>Adopt it</Button>
    </>}>
      <div className="space-y-4">
        {aliases.error && <Refusal error={aliases.error} retry={() => void aliases.refetch()} />}
        <div className="grid gap-3 sm:grid-cols-[1fr_140px]">
          <SelectField label="Alias" value={form.alias} onChange={(name) => set({ alias: name, evalId: '' })}
            hint={aliases.data?.data.length === 0 ? <>There is none yet: make one in <A to="aliases">Aliases</A>, for the model that answers now.</>
              : alias ? `It stands for ${incumbent(alias)}` : 'The name that programs call'}
            options={[{ value: '', label: 'Choose one' }, ...(aliases.data?.data ?? []).map((one) => ({ value: one.name, label: `${one.name} · ${one.target_model}` }))]} />
          <TextField label="Percent to it" type="number" min={1} max={100} value={form.percent} onChange={(event) => set({ percent: event.target.value.trim() })}
            error={whole ? undefined : 'Must be 1 to 100'} hint="100 cuts over" />
        </div>
        <SelectField label="Eval that proves it" value={form.evalId} onChange={(evalId) => set({ evalId })} disabled={!alias}
          hint={alias && fit.length === 0 ? `No eval compares it with ${incumbent(alias)} yet` : `One that compared it with what the alias stands for, by a measured judge`}
          options={[{ value: '', label: 'Any that proves it, or the alias’s own gate' }, ...fit.map((one) => ({ value: one.id, label: `${one.name} · ${one.status.toLowerCase()}` }))]} />
        {unproven ? <Proof unproven={unproven} /> : adopt.error && <Refusal error={adopt.error} />}
      </div>
    </Dialog>
  )
}
