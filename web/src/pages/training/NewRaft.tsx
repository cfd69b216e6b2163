import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useMemo } from 'react'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { count, money } from '../../format'
import { useQueryState } from '../../query'
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
import { lackingRaft, raftBody, raftSchema, type Round } from './raft'

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
        : <>At most <Money usd={Number(form.budget)} className="font-medium text-text" />, held from the wallet</>}</span>
      <Button look="primary" disabled={missing.length > 0} busy={start.isPending} onClick={() => start.mutate()}>Hold the budget and start</Button>
    </>}>
      <div className="space-y-5">
        <ModelField models={models} value={form.model} method="sample" onChange={(model) => set({ model })} />
        <SelectField label="Prompts" value={form.dataset} onChange={(dataset) => set({ dataset })}
          hint={datasets.data?.data.length === 0 ? <>There is no dataset yet: freeze one from <A to="logs">Logs</A>.</> : 'Conversations of a dataset, without their last answers; a fifth of them is held out to measure'}
          options={[{ value: '', label: 'Choose a dataset' }, ...(datasets.data?.data ?? []).map((one) => ({ value: one.id, label: `${one.name} · ${count(one.rows)} examples` }))]} />
        <JudgeField judge={form.judge} onChange={set} />
        <div className="grid grid-cols-2 gap-3 sm:grid-cols-4">
          <TextField label="Prompts, how many" {...field('prompts')} />
          <TextField label="Answers to each" {...field('samples')} />
          <TextField label="Least grade" hint="0 to 1: what is kept" {...field('grade')} />
          <SelectField label="Rounds, at most" value={form.rounds} onChange={(rounds) => set({ rounds: rounds as typeof form.rounds })} hint="Each begins only if the one before is proved better"
            options={Array.from({ length: 10 }, (_, i) => String(i + 1))} />
        </div>
        <Budget value={form.budget} onChange={(budget) => set({ budget })} hint="For GPUs and the judge together; what is not spent comes back" />
        <Work prompts={Number(form.prompts)} samples={Number(form.samples)} />
        {start.error && <Refusal error={start.error} />}
      </div>
    </Drawer>
  )
}

function Work({ prompts, samples }: { prompts: number; samples: number }) {
  const answers = prompts * samples
  if (!Number.isFinite(answers) || answers <= 0) return null
  return (
    <p className="rounded-md border border-line bg-raised px-3 py-2 text-sm">
      A round samples {count(answers)} answers, and the judge grades each once; the held-out prompts are sampled and graded again after the training.
    </p>
  )
}
