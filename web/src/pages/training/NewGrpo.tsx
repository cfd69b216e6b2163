import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useMemo } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { count, money } from '../../format'
import { useQueryState } from '../../query'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Drawer } from '../../ui/Dialog'
import { SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Refusal } from '../../ui/Refusal'
import { Money } from '../../ui/Values'
import { datasetsQuery, toolsQuery, trainableQuery } from './api'
import { Budget } from './Budget'
import { JudgeField } from './JudgeField'
import { ModelField } from './ModelField'
import { grpoBody, grpoSchema, isAmount, lackingGrpo, listOf, type GrpoForm } from './request'

type Set = (change: Partial<GrpoForm>) => void

/** Starts a GRPO run: a measured judge rewards what the model tries. One budget pays GPUs and judges, and is held first. */
export function NewGrpo({ onClose }: { onClose: () => void }) {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const client = useQueryClient()
  const { tell } = useToast()
  const [form, set] = useQueryState(grpoSchema)
  const models = useQuery(trainableQuery(ws)).data ?? []
  const datasets = useQuery(datasetsQuery(ws))
  const missing = lackingGrpo(form)
  const body = useMemo(() => grpoBody(form), [form])
  const start = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/grpo/runs', { body })),
    onSuccess: (made) => {
      for (const key of ['grpo-runs', 'wallet', 'reward-sessions']) void client.invalidateQueries({ queryKey: [key, ws] })
      tell('The run is queued', { text: `${money(made.budget_usd)} of the wallet is held for it.` })
      void navigate({ to: `/w/${ws}/training/runs/${made.id}` as never, search: {} as never })
    },
  })
  return (
    <Drawer open onClose={onClose} wide title="New GRPO run" text="The form is in the address: a copy of the link is a copy of the form." footer={<>
      <span className="mr-auto text-sm text-soft">{missing.length > 0 ? `Still needed: ${missing.join(', ')}.`
        : <>At most <Money usd={Number(form.budget)} className="font-medium text-text" />, held from the wallet</>}</span>
      <CurlButton call={{ method: 'POST', path: '/v1/grpo/runs', body }} small={false} />
      <Button look="primary" disabled={missing.length > 0} busy={start.isPending} onClick={() => start.mutate()}>Hold the budget and start</Button>
    </>}>
      <div className="space-y-5">
        <ModelField models={models} value={form.model} method="grpo" onChange={(model) => set({ model })} />
        <div className="grid gap-3 sm:grid-cols-[2fr_1fr]">
          <SelectField label="Prompts" value={form.dataset} onChange={(dataset) => set({ dataset })}
            hint={datasets.data?.data.length === 0 ? <>There is no dataset yet: freeze one from <A to="logs">Logs</A>.</> : 'Conversations of a dataset, without their last answers'}
            options={[{ value: '', label: 'Choose a dataset' }, ...(datasets.data?.data ?? []).map((one) => ({ value: one.id, label: `${one.name} · ${count(one.rows)} examples` }))]} />
          <TextField label="How many" inputMode="numeric" hint="0 for all" value={form.prompts} onChange={(event) => set({ prompts: event.target.value.trim() })} />
        </div>
        <JudgeField judge={form.judge} anchor={form.anchor} onChange={set} />
        <ToolsField form={form} set={set} />
        <Settings form={form} set={set} />
        <div className="grid gap-3 sm:grid-cols-2">
          <Budget value={form.budget} onChange={(budget) => set({ budget })} hint="For GPUs and judges together; what is not spent comes back" />
          <TextField label="Of it for judges, $" inputMode="decimal" placeholder={isAmount(form.budget) ? String(Number(form.budget) / 2) : ''} hint="By default half"
            value={form.rewards} onChange={(event) => set({ rewards: event.target.value.trim() })} />
        </div>
        <Work form={form} />
        {start.error && <Refusal error={start.error} />}
      </div>
    </Drawer>
  )
}

function ToolsField({ form, set }: { form: GrpoForm; set: Set }) {
  const tools = useQuery(toolsQuery(useWorkspaceId()))
  if (!tools.data?.length) return null
  const chosen = listOf(form.tools)
  return (
    <fieldset>
      <legend className="mb-1 text-sm font-medium">Tools that the model may call</legend>
      {tools.data.map((tool) => (
        <label key={tool.id} className="flex gap-2 py-0.5 text-sm">
          <input type="checkbox" className="mt-1 accent-accent" checked={chosen.includes(tool.id)}
            onChange={(event) => set({ tools: (event.target.checked ? [...chosen, tool.id] : chosen.filter((id) => id !== tool.id)).join(',') })} />
          <span className="min-w-0"><span className="font-mono text-xs">{tool.name}</span><span className="text-xs text-faint"> · {tool.description.slice(0, 120)}</span></span>
        </label>
      ))}
    </fieldset>
  )
}

function Settings({ form, set }: { form: GrpoForm; set: Set }) {
  const field = (name: keyof GrpoForm) => ({
    inputMode: 'decimal' as const, value: form[name], onChange: (event: { target: { value: string } }) => set({ [name]: event.target.value.trim() }),
  })
  return (
    <fieldset>
      <legend className="mb-2 text-sm font-semibold">How it learns</legend>
      <div className="grid grid-cols-2 gap-3 sm:grid-cols-4">
        <TextField label="Steps" {...field('steps')} />
        <TextField label="Prompts of a step" {...field('per')} />
        <TextField label="Group" hint="Answers to a prompt, compared with each other" {...field('group')} />
        <TextField label="KL" hint="What moving from the base costs" {...field('kl')} />
      </div>
      <details className="mt-3">
        <summary className="text-sm text-soft">More, with their defaults</summary>
        <div className="mt-3 grid grid-cols-2 gap-3 sm:grid-cols-4">
          <TextField label="Learning rate" {...field('rate')} />
          <TextField label="Tokens of an answer" {...field('tokens')} />
          <TextField label="LoRA rank" hint="0 trains all weights" {...field('rank')} />
          <TextField label="Checkpoint every" hint="Steps" {...field('every')} />
          <TextField label="Seed" placeholder="by chance" {...field('seed')} />
          <TextField label="Suffix" placeholder="support-v2" value={form.suffix} onChange={(event) => set({ suffix: event.target.value.trim() })} />
        </div>
      </details>
    </fieldset>
  )
}

function Work({ form }: { form: GrpoForm }) {
  const scored = Number(form.steps) * Number(form.per) * Number(form.group)
  if (!Number.isFinite(scored) || scored <= 0) return null
  const judges = isAmount(form.rewards) ? Number(form.rewards) : isAmount(form.budget) ? Number(form.budget) / 2 : 0
  return (
    <p className="rounded-md border border-line bg-raised px-3 py-2 text-sm">
      The judge scores at most {count(scored)} answers{judges > 0 && <>; its budget allows <Money usd={judges / scored} /> for each</>}. What each GPU hour costs, the operator has set; the run ends when either part of the budget is spent.
    </p>
  )
}
