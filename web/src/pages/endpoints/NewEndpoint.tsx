import { useMutation, useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useEffect, useMemo } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { money } from '../../format'
import { useQueryState } from '../../query'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Drawer } from '../../ui/Dialog'
import { SelectField, TextField } from '../../ui/Field'
import { Refusal } from '../../ui/Refusal'
import { Money } from '../../ui/Values'
import { trainableQuery, versionsQuery } from '../training/api'
import { enginesQuery, useChanged, walletQuery, type Engine } from './api'
import { baseModels, body as bodyOf, cost, faults, lacking, matches, otherModel, patterns, schema, seconds, serves, type Form } from './endpoint'

type Set = (change: Partial<Form>) => void

/** Makes an endpoint. What an hour costs, and what is set aside, stands before the button. */
export function NewEndpoint({ onClose }: { onClose: () => void }) {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const changed = useChanged()
  const { tell } = useToast()
  const [form, set] = useQueryState(schema)
  const engines = useQuery(enginesQuery(ws)).data ?? []
  const versions = useQuery(versionsQuery(ws)).data?.data ?? []
  const free = useQuery(walletQuery(ws)).data?.free_usd
  const version = versions.find((one) => one.id === form.model)
  const baseModel = version?.base_model ?? (form.model === otherModel ? form.other : form.model)
  const price = cost(form, baseModel, engines)
  const wrong = faults(form)
  const missing = lacking(form)
  const body = useMemo(() => bodyOf(form), [form])
  const least = price && form.most !== '' && !wrong.most && Number(form.most) < price.most
  const short = price && free !== undefined && price.most > free
  const make = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/dedicated-endpoints', { body })),
    onSuccess: async (made) => {
      await changed(ws)
      tell('The endpoint starts', { text: price ? `${money(price.most)} of the wallet is set aside for it.` : undefined })
      void navigate({ to: `/w/${ws}/training/endpoints/${made.id}` as never, search: {} as never })
    },
  })
  const ready = missing.length === 0 && Object.keys(wrong).length === 0 && price && !least && !short
  return (
    <Drawer open onClose={onClose} title="New dedicated endpoint" text="The form is in the address: a copy of the link is a copy of the form." footer={<>
      <span className="mr-auto text-sm text-soft">
        {missing.length > 0 ? `Still needed: ${missing.join(', ')}.` : !price ? 'The price is not known for this.'
          : <><Money usd={price.most} className="font-medium text-text" /> is set aside, an hour of {form.max === '1' ? 'it' : 'all replicas'}</>}
      </span>
      <CurlButton call={{ method: 'POST', path: '/v1/dedicated-endpoints', body }} small={false} />
      <Button look="primary" disabled={!ready} busy={make.isPending} onClick={() => make.mutate()}>Set it aside and start</Button>
    </>}>
      <div className="space-y-5">
        <TextField label="Name" maxLength={64} value={form.name} onChange={(event) => set({ name: event.target.value })} placeholder="support"
          hint="For people. The model id begins with it, and ends with characters that nobody can guess" />
        <ModelFields form={form} set={set} engines={engines} versions={versions} />
        <Machines form={form} set={set} engines={engines} baseModel={baseModel} wrong={wrong} />
        <TextField label="An hour may cost, $" inputMode="decimal" value={form.most} placeholder={price ? String(price.most) : 'what it costs now'}
          onChange={(event) => set({ most: event.target.value.trim() })} error={wrong.most ?? (least ? `All replicas cost ${money(price.most)} an hour` : undefined)}
          hint="With all replicas. A later start is refused when prices have risen above it" />
        {price && <PriceLine hourly={price.hourly} most={price.most} replicas={Number(form.max)} free={free} />}
        {make.error && <Refusal error={make.error} />}
      </div>
    </Drawer>
  )
}

function PriceLine({ hourly, most, replicas, free }: { hourly: number; most: number; replicas: number; free?: number }) {
  return (
    <p className="rounded-md border border-line bg-raised px-3 py-2 text-sm" aria-live="polite">
      {replicas > 1 ? <>An hour of one replica costs <Money usd={hourly} className="font-medium" />, of all {replicas} <Money usd={most} className="font-medium" />.</>
        : <>An hour costs <Money usd={hourly} className="font-medium" />.</>} Only the seconds in which an engine is ready are charged. <Money usd={most} className="font-medium" /> is
      set aside, and again before it is used up; what is not spent comes back.
      {free !== undefined && (most > free ? <span className="text-fail"> The wallet has only {money(free)} free.</span> : <> {money(free)} is free in the wallet.</>)}
    </p>
  )
}

interface ModelProps { form: Form; set: Set; engines: Engine[]; versions: { id: string; name: string; base_model: string }[] }

function ModelFields({ form, set, engines, versions }: ModelProps) {
  const ws = useWorkspaceId()
  const open = patterns(engines)
  const known = useQuery({ ...trainableQuery(ws), enabled: open.length > 0, refetchInterval: false }).data ?? []
  const bases = baseModels(engines, known.map((model) => model.id))
  const trained = versions.filter((one) => engines.some((engine) => serves(engine, one.base_model)))
  const only = bases.length === 1 && trained.length === 0 && open.length === 0 ? bases[0]! : ''
  useEffect(() => {
    if (only && !form.model) set({ model: only })
  }, [only, form.model, set])
  const unfit = form.model === otherModel && form.other !== '' && !open.some((pattern) => matches(pattern, form.other)) && !bases.includes(form.other)
  return (
    <fieldset className="space-y-3">
      <legend className="only-read">What it serves</legend>
      <SelectField label="Model" value={form.model} onChange={(model) => set({ model, gpu: '' })}
        hint={trained.length > 0 ? 'A base model, or one that was trained here' : 'What the engines of this server serve; a model that is trained from one can be chosen too'}
        options={[{ value: '', label: 'Choose one' }, ...trained.map((one) => ({ value: one.id, label: `${one.name} · trained here, from ${one.base_model}` })),
          ...bases.map((id) => ({ value: id, label: `${id} · base model` })), ...(open.length > 0 ? [{ value: otherModel, label: 'Another base model…' }] : [])]} />
      {form.model === otherModel && (
        <TextField label="Base model" spellCheck={false} value={form.other} onChange={(event) => set({ other: event.target.value.trim(), gpu: '' })}
          error={unfit ? `No engine serves it: they serve ${open.join(', ')}` : undefined} hint={`One that fits ${open.join(' or ')}`} />
      )}
    </fieldset>
  )
}

interface MachineProps { form: Form; set: Set; engines: Engine[]; baseModel: string; wrong: ReturnType<typeof faults> }

function Machines({ form, set, engines, baseModel, wrong }: MachineProps) {
  const types = engines.filter((engine) => serves(engine, baseModel)).flatMap((engine) => engine.gpu_types)
  const fit = types.filter((type, i) => types.findIndex((other) => other.gpu_type === type.gpu_type) === i)
  const number = (name: 'gpus' | 'min' | 'max' | 'idle') => ({
    inputMode: 'numeric' as const, value: form[name], error: wrong[name], onChange: (event: { target: { value: string } }) => set({ [name]: event.target.value.trim() }),
  })
  return (
    <fieldset className="space-y-3">
      <legend className="only-read">Where it runs</legend>
      <div className="grid gap-3 sm:grid-cols-2">
        <SelectField label="GPU type" value={form.gpu || (fit[0]?.gpu_type ?? '')} disabled={fit.length === 0} onChange={(gpu) => set({ gpu: gpu === fit[0]?.gpu_type ? '' : gpu })}
          hint={baseModel && fit.length === 0 ? 'No GPU type with a price serves this model' : undefined}
          options={fit.length ? fit.map((type) => ({ value: type.gpu_type, label: `${type.gpu_type} · ${money(type.hourly_usd)} an hour` })) : [{ value: '', label: 'Choose a model first' }]} />
        <TextField label="GPUs of a replica" {...number('gpus')} />
        <TextField label="Replicas, at least" hint={form.min === '0' ? 'None while nobody calls it' : 'They run, and cost, all the time'} {...number('min')} />
        <TextField label="Replicas, at most" hint="One more for every 16 requests at once" {...number('max')} />
      </div>
      {form.min === '0' && (
        <TextField label="Idle time-out, seconds" {...number('idle')}
          hint={wrong.idle ? undefined : `After ${seconds(Number(form.idle))} without a request its engine ends; the next request waits until one has loaded`} />
      )}
    </fieldset>
  )
}
