import { keepPreviousData, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { useCriteria } from '../aliases/EditAlias'
import { count } from '../../format'
import { useQueryState } from '../../query'
import { useSettled } from '../../settled'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Drawer } from '../../ui/Dialog'
import { Field, SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { catalogOf, ModelPicker, ModelsPicker, useModels, type Model } from '../../ui/ModelPicker'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'
import { Money, Price } from '../../ui/Values'
import { parseCases } from './cases'
import { formSchema, lacking, listOf, toBody, type Form, type NewEvalBody } from './request'

type SetForm = (change: Partial<Form>) => void

/** Chat models of the catalog, and the workspace's own servers. */
function useComparable(): Model[] {
  const ws = useWorkspaceId()
  const models = catalogOf(useModels().data)
  const servers = useQuery({
    queryKey: ['eval-endpoints', ws],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/endpoints', { params: { query: { limit: 200 } }, signal })),
  })
  const sample = models[0]
  if (!sample) return models
  const free = { ...sample.price, input_per_mtok_usd: 0, output_per_mtok_usd: 0 }
  return [...models, ...(servers.data?.data ?? []).map((one) => ({ ...sample, id: `endpoint/${one.id}`, price: free, simulated: false }))]
}

/** Starts an eval. What it would cost is asked while the form is filled in. */
export function NewEval({ onClose }: { onClose: () => void }) {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const client = useQueryClient()
  const { tell } = useToast()
  const [form, set] = useQueryState(formSchema)
  const [pasted, setPasted] = useState('')
  const parsed = useMemo(() => parseCases(pasted), [pasted])
  const missing = lacking(form, parsed.cases)
  const body = useMemo(() => toBody(form, parsed.cases), [form, parsed])
  const asked = useSettled(missing.length === 0 ? body : undefined)
  const estimate = useQuery({
    queryKey: ['eval-estimate', ws, asked], enabled: asked !== undefined, placeholderData: keepPreviousData, retry: false,
    queryFn: ({ signal }) => data(v1(ws).POST('/v1/evals/estimates', {
      params: { query: asked!.criterion_id ? { max_regression: 0.05 } : {} }, body: asked!, signal,
    })),
  })
  const start = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/evals', { body })),
    onSuccess: (made) => {
      void client.invalidateQueries({ queryKey: ['evals', ws] })
      tell(`${made.name} has begun`)
      void navigate({ to: `/w/${ws}/evals/${made.id}` as never, search: {} as never })
    },
  })
  return (
    <Drawer open onClose={onClose} wide title="New eval" text="The form is in the address: a copy of the link is a copy of the form." footer={<>
      <span className="mr-auto text-sm">
        {missing.length > 0 ? <span className="text-soft">Still needed: {missing.join(', ')}.</span>
          : estimate.error ? <span className="text-fail">It cannot be started as it stands.</span>
            : <Price usd={estimate.data?.cost_usd} loading={estimate.isPending || asked !== body} />}
      </span>
      <CurlButton call={{ method: 'POST', path: '/v1/evals', body }} small={false} />
      <Button look="primary" disabled={missing.length > 0 || Boolean(estimate.error)} busy={start.isPending} onClick={() => start.mutate()}>Start</Button>
    </>}>
      <div className="space-y-5">
        <Models form={form} set={set} />
        <Judging form={form} set={set} />
        <Source form={form} set={set} pasted={pasted} setPasted={setPasted} parsed={parsed} />
        <Rest form={form} set={set} />
        {missing.length === 0 && estimate.error && <Refusal title="It cannot be started as it stands" error={estimate.error} />}
        {estimate.data && missing.length === 0 && !estimate.error && <Estimate of={estimate.data} body={body} />}
        {start.error && <Refusal error={start.error} />}
      </div>
    </Drawer>
  )
}

function Models({ form, set }: { form: Form; set: SetForm }) {
  const models = useComparable()
  return (
    <fieldset className="space-y-3">
      <legend className="only-read">Models</legend>
      <TextField label="Name" maxLength={64} value={form.name} onChange={(event) => set({ name: event.target.value })} />
      <ModelPicker label="Baseline" value={form.baseline} onChange={(baseline) => set({ baseline })} models={models} hint="What is in use now" />
      <ModelsPicker label="Candidates" hint="What may replace it" models={models.filter((model) => model.id !== form.baseline)}
        value={listOf(form.candidates)} onChange={(ids) => set({ candidates: ids.join(',') })} most={16} />
    </fieldset>
  )
}

function Judging({ form, set }: { form: Form; set: SetForm }) {
  const criteria = useCriteria().data?.data ?? []
  const models = catalogOf(useModels().data)
  return (
    <fieldset className="space-y-3">
      <SelectField label="Who judges" value={form.kind} onChange={(kind) => set({ kind: kind as Form['kind'] })} options={[
        { value: 'criterion', label: 'A judge of this workspace: passes or fails each answer; proves that quality does not fall' },
        { value: 'rubric', label: 'A rubric: compares two answers in both orders; finds the better model, by a judge that nobody measured' },
      ]} />
      {form.kind === 'criterion' ? (
        <SelectField label="Judge" value={form.criterion} onChange={(criterion) => set({ criterion })}
          hint={criteria.length === 0 ? 'There is none yet: make one in Judges, or use a rubric' : undefined}
          options={[{ value: '', label: 'Choose one' }, ...criteria.map((one) => ({ value: one.id, label: `${one.name} · ${one.trust}` }))]} />
      ) : <>
        <Field label="Rubric" hint="What makes one answer better than another">
          {(props) => <textarea {...props} rows={3} className="control w-full" value={form.rubric} onChange={(event) => set({ rubric: event.target.value })} />}
        </Field>
        <ModelPicker label="The model that judges" value={form.judge} onChange={(judge) => set({ judge })} models={models}
          hint="Neither of those that are compared: models prefer their own answers" />
      </>}
    </fieldset>
  )
}

interface SourceProps { form: Form; set: SetForm; pasted: string; setPasted: (text: string) => void; parsed: ReturnType<typeof parseCases> }

function Source({ form, set, pasted, setPasted, parsed }: SourceProps) {
  const ws = useWorkspaceId()
  const datasets = useQuery({
    queryKey: ['datasets', ws], enabled: form.source === 'dataset',
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/datasets', { params: { query: { limit: 200 } }, signal })),
  })
  const field = (name: 'tag' | 'model' | 'segment' | 'count' | 'seed') => ({
    value: form[name], onChange: (event: { target: { value: string } }) => set({ [name]: event.target.value.trim() }),
  })
  return (
    <fieldset className="space-y-3">
      <SelectField label="Cases" value={form.source} onChange={(source) => set({ source: source as Form['source'] })} options={[
        { value: 'logs', label: 'Drawn from logged requests' }, { value: 'dataset', label: 'A dataset' }, { value: 'inline', label: 'Pasted, or a JSONL file' },
      ]} />
      {form.source === 'logs' && <>
        <div className="grid gap-3 sm:grid-cols-3">
          <TextField label="Tag" placeholder="any" {...field('tag')} /><TextField label="Model that answered" placeholder="any" {...field('model')} />
          <TextField label="Segment" placeholder="any" {...field('segment')} />
        </div>
        {(form.start || form.end) && <p className="text-xs text-soft">From {form.start || 'the beginning'} to {form.end || 'now'}.</p>}
        <Switch label="Take the baseline’s logged answers" hint="Where it answered then; they are not paid again" on={form.reuse} onChange={(reuse) => set({ reuse })} />
      </>}
      {form.source === 'dataset' && (
        <SelectField label="Dataset" value={form.dataset} onChange={(dataset) => set({ dataset })}
          hint={datasets.data?.data.length === 0 ? <>There is none yet: freeze one from <A to="logs">Logs</A>.</> : undefined}
          options={[{ value: '', label: 'Choose one' }, ...(datasets.data?.data ?? []).map((one) => ({ value: one.id, label: `${one.name} · ${count(one.rows)} examples` }))]} />
      )}
      {form.source === 'inline' ? (
        <Field label="Cases, one JSON object on a line" error={parsed.problems[0]}
          hint={`${count(parsed.cases.length)} cases. A line has messages, or input or prompt as in OpenAI’s evals; at most 1,000.`}>
          {(props) => <>
            <textarea {...props} rows={6} spellCheck={false} className="control w-full font-mono text-xs" value={pasted} onChange={(event) => setPasted(event.target.value)}
              placeholder={'{"messages":[{"role":"user","content":"Where is my order?"}]}'} />
            <input type="file" accept=".jsonl,.ndjson,.json,.txt" aria-label="A JSONL file" className="mt-1 block text-xs"
              onChange={(event) => void event.target.files?.[0]?.text().then(setPasted)} />
          </>}
        </Field>
      ) : (
        <div className="grid gap-3 sm:grid-cols-2">
          <TextField label="How many" inputMode="numeric" placeholder={form.source === 'dataset' ? 'all' : '100'} {...field('count')} />
          <TextField label="Seed" inputMode="numeric" placeholder="by chance" hint="The same seed draws the same cases" {...field('seed')} />
        </div>
      )}
    </fieldset>
  )
}

const Rest = ({ form, set }: { form: Form; set: SetForm }) => (
  <fieldset className="grid gap-3 sm:grid-cols-2">
    <TextField label="It may cost at most, $" inputMode="decimal" placeholder="no bound" hint="Nothing is started that would cost more, and it stops there"
      value={form.max_cost} onChange={(event) => set({ max_cost: event.target.value.trim() })} />
    <TextField label="Parameters, as JSON" placeholder={'{"max_tokens":400}'} hint="Sent to every model" spellCheck={false} value={form.parameters}
      onChange={(event) => set({ parameters: event.target.value })} />
  </fieldset>
)

function Estimate({ of, body }: { of: { cost_usd: number; cases: number; calls: number; left_out: number; cases_needed?: number | null }; body: NewEvalBody }) {
  const needed = of.cases_needed ?? null
  return (
    <p className="rounded-md border border-line bg-raised px-3 py-2 text-sm">
      {count(of.cases)} cases, at most {count(of.calls)} requests to models, about <Money usd={of.cost_usd} className="font-medium" />.
      {of.left_out > 0 && ` ${count(of.left_out)} are left out: repeats, other turns of a conversation, or unreadable.`}
      {body.max_cost_usd !== undefined && of.cost_usd > body.max_cost_usd && <span className="text-fail"> That is more than it may cost.</span>}
      {needed !== null && <> To prove a regression of at most five points takes about {count(needed)} cases{needed > of.cases
        ? <span className="text-warn">: these are too few for that gate</span> : ''}.</>}
    </p>
  )
}
