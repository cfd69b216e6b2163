import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { plural } from '../../format'
import { Button } from '../../ui/Button'
import { SelectField, TextField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Time } from '../../ui/Values'
import { modelsQuery, suggestionsQuery } from './api'
import { JudgeForm } from './JudgeForm'
import { RunState, Start } from './runs'

/** Judges that a model drafts from logs and critiques. */
export function Suggestions({ ws, starting, onStart }: { ws: string; starting: boolean; onStart: (on: boolean) => void }) {
  const { manages } = useWorkspace()
  const navigate = useNavigate()
  const list = useQuery(suggestionsQuery(ws))
  const [draft, setDraft] = useState<{ name: string; rubric: string; scale: string } | null>(null)
  const runs = list.data?.data ?? []
  return (
    <>
      {runs.length > 0 && (
        <Section title="Suggestions" aside="drafted by a model from logs and critiques">
          <ul className="space-y-4">
            {runs.slice(0, 5).map((run) => (
              <li key={run.id}>
                <div className="mb-1 text-xs text-soft"><Time value={run.created_at} relative /> · {run.model} · {plural(run.exchanges, 'exchange')}</div>
                <RunState run={run} label="Suggestion" cancel={() => data(v1(ws).POST('/v1/suggestions/{run_id}/cancel', { params: { path: { run_id: run.id } } }))} />
                <ul className="mt-2 space-y-2">
                  {run.criteria.map((one, i) => (
                    <li key={i} className="rounded-md border border-line px-3 py-2 text-sm">
                      <div className="flex items-start gap-2"><strong className="min-w-0 flex-1 break-words">{one.name}</strong>
                        {manages && <Button small onClick={() => setDraft(one)}>Use it…</Button>}</div>
                      <p className="mt-1 break-words whitespace-pre-wrap">{one.rubric}</p>
                      <p className="mt-1 text-xs break-words text-soft">{one.why}</p>
                    </li>
                  ))}
                </ul>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {starting && <StartSuggestion ws={ws} onClose={() => onStart(false)} />}
      {draft && <JudgeForm ws={ws} draft={draft} onClose={() => setDraft(null)} onDone={(judge) => void navigate({ to: `/w/${ws}/judges/${judge.id}` as never })} />}
    </>
  )
}

function StartSuggestion({ ws, onClose }: { ws: string; onClose: () => void }) {
  const queries = useQueryClient()
  const { tell } = useToast()
  const models = useQuery(modelsQuery(ws))
  const chats = (models.data?.data ?? []).filter((model) => model.kind === 'chat' && !model.target_model)
  const [chosen, setChosen] = useState('')
  const [size, setSize] = useState('50')
  const model = chosen || chats[0]?.id || ''
  const sample_size = Math.min(200, Math.max(1, Number(size) || 50))
  return (
    <Start title="Suggest judges" action="Draft" onClose={onClose} disabled={!model} text="A model reads a sample of logs and the critiques of people, and drafts criteria."
      inquiry={{ kind: 'suggestion', model, sample_size }} call={{ path: '/v1/criteria/suggestions', body: { model, sample_size } }}
      run={async (max) => {
        await data(v1(ws).POST('/v1/criteria/suggestions', { body: { model, sample_size, ...(max !== undefined && { max_cost_usd: max }) } }))
        tell('Drafting started')
        await queries.invalidateQueries({ queryKey: ['suggestions', ws] })
      }}>
      <div className="grid gap-3 sm:grid-cols-2">
        <SelectField label="Model" value={model} onChange={setChosen} options={chats.map((one) => one.id)} />
        <TextField label="Exchanges" type="number" min={1} max={200} value={size} onChange={(e) => setSize(e.target.value)} />
      </div>
    </Start>
  )
}
