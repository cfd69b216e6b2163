import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { curl } from '../../api/curl'
import type { components } from '../../api/v1'
import { useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { plural } from '../../format'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Confirm } from '../../ui/Dialog'
import { EmptyState } from '../../ui/EmptyState'
import { SelectField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { SkeletonLines, Time } from '../../ui/Values'
import { improvementsQuery, modelsQuery, type Judge } from './api'
import { notYours, RunState, Start } from './runs'

type Improvement = components['schemas']['Improvement']

/** Better rubrics that a model drafts from disagreements of the tuning half. */
export function Drafts({ ws, judge }: { ws: string; judge: Judge }) {
  const { manages } = useWorkspace()
  const [starting, setStarting] = useState(false)
  const [adopting, setAdopting] = useState<Improvement | null>(null)
  const queries = useQueryClient()
  const { tell } = useToast()
  const list = useQuery(improvementsQuery(ws, judge.id))
  if (list.error) return <Refusal error={list.error} retry={() => void list.refetch()} />
  if (!list.data) return <SkeletonLines />
  const runs = list.data.data
  const start = <Button look="primary" disabled={!manages} title={manages ? undefined : notYours} onClick={() => setStarting(true)}>Draft a better rubric…</Button>
  return (
    <>
      {runs.length === 0 ? <EmptyState title="No draft yet" text="A model reads where judge and people disagree, in the tuning half alone, and drafts a better rubric. What measures the judge stays unseen. Nothing changes until you adopt it."
        snippet={curl({ method: 'POST', path: `/v1/criteria/${judge.id}/improvements`, body: {} })} action={start} />
        : <div className="mb-3 flex justify-end gap-2"><CurlButton call={{ path: `/v1/criteria/${judge.id}/improvements` }} />{start}</div>}
      {runs.map((run) => (
        <Section key={run.id} title={<>Draft of <Time value={run.created_at} /></>} aside={`${run.model}, from ${plural(run.cases, 'disagreement')} of version ${run.criterion_version}`}
          actions={run.rubric !== null && manages && <Button small onClick={() => setAdopting(run)} disabled={run.rubric === judge.rubric}>{run.rubric === judge.rubric ? 'Adopted' : 'Adopt…'}</Button>}>
          <RunState run={run} label="Draft" cancel={() => data(v1(ws).POST('/v1/criteria/{id}/improvements/{run_id}/cancel', { params: { path: { id: judge.id, run_id: run.id } } }))} />
          {run.rubric !== null && (
            <div className="mt-3 grid gap-4 text-sm lg:grid-cols-2">
              <div><h3 className="mb-1 text-xs font-semibold text-soft">Now</h3><p className="break-words whitespace-pre-wrap text-soft">{judge.rubric}</p></div>
              <div><h3 className="mb-1 text-xs font-semibold text-soft">Draft</h3><p className="break-words whitespace-pre-wrap">{run.rubric}</p></div>
            </div>
          )}
          {run.changes.length > 0 && <ul className="mt-3 list-disc space-y-0.5 pl-4 text-sm text-soft">{run.changes.map((change, i) => <li key={i} className="break-words">{change}</li>)}</ul>}
        </Section>
      ))}
      <Confirm open={adopting !== null} onClose={() => setAdopting(null)} title="Adopt the rubric" action="Adopt"
        text="It becomes the judge’s rubric: a new version. The certificate becomes void; calibrate again afterwards. The old rubric stays in the versions."
        run={async () => {
          await data(v1(ws).POST('/v1/criteria/{id}/improvements/{run_id}/adopt', { params: { path: { id: judge.id, run_id: adopting!.id } } }))
          for (const key of ['criterion', 'criteria', 'certificate', 'judge history']) void queries.invalidateQueries({ queryKey: [key, ws] })
          tell('Rubric adopted', { text: 'Calibrate the judge to measure it.' })
        }} />
      {starting && <StartDraft ws={ws} judge={judge} onClose={() => setStarting(false)} />}
    </>
  )
}

function StartDraft({ ws, judge, onClose }: { ws: string; judge: Judge; onClose: () => void }) {
  const queries = useQueryClient()
  const { tell } = useToast()
  const models = useQuery(modelsQuery(ws))
  const [model, setModel] = useState('')
  const chats = (models.data?.data ?? []).filter((one) => one.kind === 'chat' && !one.target_model).map((one) => one.id)
  const body = model ? { model } : {}
  return (
    <Start title="Draft a better rubric" action="Draft" onClose={onClose} text="From the disagreements of the tuning half."
      inquiry={{ kind: 'improvement', criterion_id: judge.id, ...body }} call={{ path: `/v1/criteria/${judge.id}/improvements`, body }}
      run={async (max) => {
        await data(v1(ws).POST('/v1/criteria/{id}/improvements', { params: { path: { id: judge.id } }, body: { ...body, ...(max !== undefined && { max_cost_usd: max }) } }))
        tell('Drafting started')
        await queries.invalidateQueries({ queryKey: ['improvements', ws, judge.id] })
      }}>
      <SelectField label="Model that drafts" value={model} onChange={setModel} options={[{ value: '', label: `the judge’s own (${judge.judge_model})` }, ...chats]} />
    </Start>
  )
}
