import { keepPreviousData, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useMemo } from 'react'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { count, money } from '../../format'
import { useQueryState } from '../../query'
import { useSettled } from '../../settled'
import { Button } from '../../ui/Button'
import { Drawer } from '../../ui/Dialog'
import { SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Refusal } from '../../ui/Refusal'
import { Money } from '../../ui/Values'
import { datasetsQuery, trainableQuery } from './api'
import { Budget } from './Budget'
import { JudgeField } from './JudgeField'
import { ModelField } from './ModelField'
import { lackingRaft, raftBody, raftSchema, type Plan, type Round } from './raft'

/** Starts a RAFT round. Its budget is held first. */
export function NewRaft({ onClose }: { onClose: () => void }) {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const client = useQueryClient()
  const { tell } = useToast()
  const [form, set] = useQueryState(raftSchema)
  const models = useQuery(trainableQuery(ws)).data ?? []
  const datasets = useQuery(datasetsQuery(ws))
  const missing = lackingRaft(form)
  const body = useMemo(() => raftBody(form), [form])
  const asked = useSettled(missing.length === 0 ? body : undefined)
  const plan = useQuery({
    queryKey: ['raft-plan', ws, asked], enabled: asked !== undefined, placeholderData: keepPreviousData, retry: false,
    queryFn: ({ signal }) => call<Plan>(ws, 'POST', '/raft/plans', { body: asked, signal }),
  })
  const refused = missing.length === 0 && asked === body ? plan.error : null
  const start = useMutation({
    mutationFn: () => call<Round>(ws, 'POST', '/raft/rounds', { body }),
    onSuccess: (made) => {
      for (const key of ['raft-rounds', 'wallet']) void client.invalidateQueries({ queryKey: [key, ws] })
      tell('The round has begun', { text: `${money(made.budget_usd)} of the wallet is held for it.` })
      void navigate({ to: `/w/${ws}/training/rounds/${made.id}` as never, search: {} as never })
    },
  })
  const field = (name: 'prompts' | 'samples' | 'grade') => ({
    inputMode: 'decimal' as const, value: form[name], onChange: (event: { target: { value: string } }) => set({ [name]: event.target.value.trim() }),
  })
  return (
    <Drawer open onClose={onClose} wide title="New RAFT round" text="The form is in the address: a copy of the link is a copy of the form." footer={<>
      <span className="mr-auto text-sm text-soft">{missing.length > 0 ? `Still needed: ${missing.join(', ')}.`
        : refused ? <span className="text-fail">It cannot be started as it stands.</span>
        : <>At most <Money usd={Number(form.budget)} className="font-medium text-text" />, held from the wallet</>}</span>
      <Button look="primary" disabled={missing.length > 0 || Boolean(refused)} busy={start.isPending} onClick={() => start.mutate()}>Hold the budget and start</Button>
    </>}>
      <div className="space-y-5">
        <ModelField models={models} versions value={form.model} method="sample" onChange={(model) => set({ model })} />
        <SelectField label="Prompts" value={form.dataset} onChange={(dataset) => set({ dataset })}
          hint={datasets.data?.data.length === 0 ? <>There is no dataset yet: freeze one from <A to="logs">Logs</A>.</> : 'Conversations of a dataset, without their last answers; a fifth of them is held out to measure'}
          options={[{ value: '', label: 'Choose a dataset' }, ...(datasets.data?.data ?? []).map((one) => ({ value: one.id, label: `${one.name} · ${count(one.rows)} examples` }))]} />
        <JudgeField judge={form.judge} onChange={set} />
        <div className="grid grid-cols-2 gap-3 sm:grid-cols-4">
          <TextField label="Prompts, how many" hint="0 for all, up to 5,000" {...field('prompts')} />
          <TextField label="Answers to each" {...field('samples')} />
          <TextField label="Least grade" hint="0 to 1: what is kept" {...field('grade')} />
          <SelectField label="Rounds, at most" value={form.rounds} onChange={(rounds) => set({ rounds: rounds as typeof form.rounds })} hint="Each begins only if the one before is proved better"
            options={Array.from({ length: 10 }, (_, i) => String(i + 1))} />
        </div>
        <Budget value={form.budget} onChange={(budget) => set({ budget })} hint="For GPUs and the judge together; what is not spent comes back" />
        {refused && <Refusal title="It cannot be started as it stands" error={refused} />}
        {plan.data && missing.length === 0 && !refused && <PlanLine of={plan.data} rounds={Number(form.rounds)} />}
        {start.error && <Refusal error={start.error} />}
      </div>
    </Drawer>
  )
}

function PlanLine({ of, rounds }: { of: Plan; rounds: number }) {
  return (
    <p className="rounded-md border border-line bg-raised px-3 py-2 text-sm">
      {rounds > 1 && 'Each round: '}{count(of.prompt_count)} prompts, of which {count(of.held_out_count)} are held out; {count(of.samples)} answers are scored, of the model before and after, for
      about <Money usd={of.estimated_scoring_usd} className="font-medium" /> and at most <Money usd={of.reward_budget_usd} />. <Money usd={of.gpu_budget_usd} /> is left for GPUs.
    </p>
  )
}
