import { keepPreviousData, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useEffect, useMemo } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { count, duration, money } from '../../format'
import { useQueryState } from '../../query'
import { useSettled } from '../../settled'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Drawer } from '../../ui/Dialog'
import { SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Refusal } from '../../ui/Refusal'
import { Money } from '../../ui/Values'
import { datasetsQuery, trainableQuery, type Estimate } from './api'
import { Budget } from './Budget'
import { FileField } from './FileField'
import { ModelField } from './ModelField'
import { isAmount, jobBody, jobSchema, lackingJob, type JobForm } from './request'

type Set = (change: Partial<JobForm>) => void

/** Starts a fine-tuning job. What it takes and costs is asked while the form is filled in; the budget is held first. */
export function NewJob({ onClose }: { onClose: () => void }) {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const client = useQueryClient()
  const { tell } = useToast()
  const [form, set] = useQueryState(jobSchema)
  const models = useQuery(trainableQuery(ws)).data ?? []
  const only = models.length === 1 ? models[0]!.id : ''
  useEffect(() => {
    if (only && !form.model) set({ model: only })
  }, [only, form.model, set])
  const missing = lackingJob(form)
  const body = useMemo(() => jobBody(form), [form])
  const asked = useSettled(missing.length === 0 ? body : undefined)
  const estimate = useQuery({
    queryKey: ['ft-estimate', ws, asked], enabled: asked !== undefined, placeholderData: keepPreviousData, retry: false,
    queryFn: ({ signal }) => data(v1(ws).POST('/v1/fine-tuning/estimates', { body: asked!, signal })),
  })
  const start = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/fine-tuning/jobs', { body })),
    onSuccess: (made) => {
      for (const key of ['ft-jobs', 'wallet']) void client.invalidateQueries({ queryKey: [key, ws] })
      tell('The job is queued', { text: `${money(made.budget_usd)} of the wallet is held for it.` })
      void navigate({ to: `/w/${ws}/training/runs/${made.id}` as never, search: {} as never })
    },
  })
  const refused = missing.length === 0 && asked === body ? estimate.error : null
  return (
    <Drawer open onClose={onClose} wide title="New fine-tuning job" text="The form is in the address: a copy of the link is a copy of the form." footer={<>
      <span className="mr-auto text-sm">
        {missing.length > 0 ? <span className="text-soft">Still needed: {missing.join(', ')}.</span>
          : refused ? <span className="text-fail">It cannot be started as it stands.</span>
            : <span className="text-soft">At most <Money usd={Number(form.budget)} className="font-medium text-text" />, held from the wallet</span>}
      </span>
      <CurlButton call={{ method: 'POST', path: '/v1/fine-tuning/jobs', body }} small={false} />
      <Button look="primary" disabled={missing.length > 0 || Boolean(refused)} busy={start.isPending} onClick={() => start.mutate()}>Hold the budget and start</Button>
    </>}>
      <div className="space-y-5">
        <fieldset className="space-y-3">
          <legend className="only-read">What is trained</legend>
          <ModelField models={models} versions value={form.model} onChange={(model) => set({ model })} />
          <SelectField label="Method" value={form.method} onChange={(method) => set({ method: method as JobForm['method'], ...(method === 'dpo' && form.source === 'dataset' && { source: 'file' }) })} options={[
            { value: 'sft', label: 'Fine-tuning (SFT): learns the answers of the examples' },
            { value: 'dpo', label: 'Preferences (DPO): learns to prefer chosen answers to rejected ones' },
          ]} />
        </fieldset>
        <Examples form={form} set={set} />
        <Hyperparameters form={form} set={set} />
        <Budget value={form.budget} onChange={(budget) => set({ budget })} hint="What is not spent comes back; a job that reaches it saves a checkpoint and ends" />
        {refused && <Refusal title="It cannot be started as it stands" error={refused} />}
        {estimate.data && missing.length === 0 && !refused && <EstimateLine of={estimate.data} budget={form.budget} />}
        {start.error && <Refusal error={start.error} />}
      </div>
    </Drawer>
  )
}

function Examples({ form, set }: { form: JobForm; set: Set }) {
  const ws = useWorkspaceId()
  const datasets = useQuery(datasetsQuery(ws, form.source === 'dataset'))
  const sessions = useQuery({
    queryKey: ['reward-sessions', ws, ''], enabled: form.source === 'session',
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/reward/sessions', { params: { query: { limit: 200 } }, signal })),
  })
  return (
    <fieldset className="space-y-3">
      <legend className="only-read">Examples</legend>
      <SelectField label="Examples" value={form.source} onChange={(source) => set({ source: source as JobForm['source'] })} options={[
        ...(form.method === 'sft' ? [{ value: 'dataset', label: 'A dataset of logged exchanges; its holdout validates' }] : []),
        { value: 'file', label: 'A file' }, { value: 'session', label: form.method === 'sft' ? 'What passed in a reward session' : 'Pairs of a reward session' },
      ]} />
      {form.source === 'dataset' && (
        <SelectField label="Dataset" value={form.dataset} onChange={(dataset) => set({ dataset })}
          hint={datasets.data?.data.length === 0 ? <>There is none yet: freeze one from <A to="logs">Logs</A>.</> : undefined}
          options={[{ value: '', label: 'Choose one' }, ...(datasets.data?.data ?? []).filter((one) => one.role !== 'eval').map((one) => ({ value: one.id, label: `${one.name} · ${count(one.rows)} examples` }))]} />
      )}
      {form.source === 'file' && <>
        <FileField value={form.file} onChange={(file, known) => set({ file, ...(known && { method: known.format === 'preference' ? 'dpo' : 'sft' }) })} />
        <FileField optional label="File that validates" value={form.validation} onChange={(validation) => set({ validation })} />
      </>}
      {form.source === 'session' && (
        <SelectField label="Reward session" value={form.session} onChange={(session) => set({ session })}
          hint={sessions.data?.data.length === 0 ? <>There is none yet: begin one in <A to="rewards">Rewards</A>.</> : undefined}
          options={[{ value: '', label: 'Choose one' }, ...(sessions.data?.data ?? []).map((one) => ({ value: one.id, label: `${one.label || one.id} · ${count(one.scored)} scored` }))]} />
      )}
    </fieldset>
  )
}

function Hyperparameters({ form, set }: { form: JobForm; set: Set }) {
  const field = (name: keyof JobForm) => ({
    inputMode: 'decimal' as const, value: form[name], onChange: (event: { target: { value: string } }) => set({ [name]: event.target.value.trim() }),
  })
  return (
    <fieldset>
      <legend className="mb-2 text-sm font-semibold">How it learns</legend>
      <div className="grid grid-cols-2 gap-3 sm:grid-cols-4">
        <TextField label="Epochs" hint="Passes over the examples" {...field('epochs')} />
        <TextField label="Batch size" hint="Examples of a step" {...field('batch')} />
        <TextField label="Learning rate" {...field('rate')} />
        <TextField label="LoRA rank" hint="0 trains all weights" {...field('rank')} />
      </div>
      <details className="mt-3">
        <summary className="text-sm text-soft">More, with their defaults</summary>
        <div className="mt-3 grid grid-cols-2 gap-3 sm:grid-cols-4">
          <TextField label="Longest example" hint="Tokens; longer ones are cut" {...field('length')} />
          <TextField label="Checkpoint every" hint="Steps" {...field('every')} />
          <TextField label="Gradient accumulation" {...field('accumulation')} />
          <TextField label="Warm-up" hint="Share of the steps" {...field('warmup')} />
          <TextField label="Early stopping" hint="Checkpoints without a lower loss; 0 never" {...field('patience')} />
          <TextField label="At most, steps" placeholder="no bound" {...field('steps')} />
          <TextField label="Seed" placeholder="by chance" {...field('seed')} />
          <TextField label="Suffix" placeholder="support-v2" hint="A part of the model’s name" value={form.suffix} onChange={(event) => set({ suffix: event.target.value.trim() })} />
          {form.method === 'dpo' && <TextField label="Beta" hint="How close it stays to the base" {...field('beta')} />}
        </div>
      </details>
    </fieldset>
  )
}

const bases: Record<Estimate['basis'], string> = { measured: 'by earlier jobs of this model', computed: 'from the model’s size', unknown: '' }

function EstimateLine({ of, budget }: { of: Estimate; budget: string }) {
  const cost = of.estimated_cost_usd
  return (
    <p className="rounded-md border border-line bg-raised px-3 py-2 text-sm">
      {of.rows > 0 ? <>{count(of.rows)} examples, {count(of.steps)} steps, about {count(of.tokens)} tokens. </> : 'How many examples there are is known when the data is prepared. '}
      {of.seconds === null ? 'How long it takes is not known for this model and GPU.'
        : <>About {duration(of.seconds * 1000)} on {of.gpu_type || 'a worker'}{cost !== null && <> and <Money usd={cost} className="font-medium" /></>}{bases[of.basis] && `, ${bases[of.basis]}`}.</>}
      {cost !== null && isAmount(budget) && cost > Number(budget) && <span className="text-warn"> That is more than the budget: it would end before it is done.</span>}
    </p>
  )
}
