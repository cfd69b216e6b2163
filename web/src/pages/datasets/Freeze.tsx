import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useToast } from '../../app/Toasts'
import { count, plural } from '../../format'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Dialog } from '../../ui/Dialog'
import { SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Refusal } from '../../ui/Refusal'
import type { Dataset } from './funnel'

interface Filters { model: string; tag: string; segment: string; finish_reason: string; cache_hit: string; start: string; end: string }
interface Props { ws: string; filters: Filters; onClose: () => void; onDone: (dataset: Dataset) => void }

const newest = 100_000

/** Freezes what a filter of the logs shows. It costs nothing. */
export function Freeze({ ws, filters: given, onClose, onDone }: Props) {
  const queries = useQueryClient()
  const { tell } = useToast()
  const [name, setName] = useState('')
  const [holdout, setHoldout] = useState('20')
  const [form, setForm] = useState(given)
  const { cache_hit: hit, ...texts } = form
  const filters = {
    ...Object.fromEntries(Object.entries(texts).filter(([, value]) => value !== '')), ...(hit && { cache_hit: hit === 'true' }),
  }
  const matching = useQuery({
    queryKey: ['logs', ws, 'count', filters],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/logs', { params: { query: { ...filters, limit: 1 } as never }, signal })),
  })
  const body = { name: name.trim(), holdout_pct: Number(holdout) || 0, ...(Object.keys(filters).length > 0 && { filters }) }
  const make = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/datasets/from_logs', { body })),
    onSuccess: (dataset) => {
      void queries.invalidateQueries({ queryKey: ['datasets', ws] })
      tell(`${dataset.name} is frozen`, { text: plural(dataset.rows, 'example') })
      onDone(dataset)
    },
  })
  const total = matching.data?.total
  return (
    <Dialog open onClose={onClose} title="Freeze from logs" text="Logged exchanges become examples. Free, and it never changes afterwards." footer={<>
      <CurlButton call={{ method: 'POST', path: '/v1/datasets/from_logs', body }} />
      <span className="mr-auto text-sm text-soft" aria-live="polite">{total === undefined ? 'Counting…' : total > newest ? `The newest ${count(newest)} of ${count(total)}.` : `${plural(total, 'exchange')} match.`}</span>
      <Button onClick={onClose}>Cancel</Button>
      <Button look="primary" type="submit" form="freeze" busy={make.isPending} disabled={total === 0}>Freeze</Button>
    </>}>
      <form id="freeze" className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        make.mutate()
      }}>
        <div className="grid gap-3 sm:grid-cols-[1fr_9rem]">
          <TextField label="Name" required maxLength={64} value={name} onChange={(e) => setName(e.target.value)} autoFocus />
          <SelectField label="Held out" value={holdout} onChange={setHoldout} options={['0', '10', '20', '30', '50'].map((value) => ({ value, label: `${value} %` }))} />
        </div>
        <div className="grid gap-3 sm:grid-cols-2">
          <TextField label="Model" placeholder="any" value={form.model} onChange={(e) => setForm({ ...form, model: e.target.value })} />
          <TextField label="Tag" placeholder="any" value={form.tag} onChange={(e) => setForm({ ...form, tag: e.target.value })} />
        </div>
        {(form.segment || form.finish_reason || form.start || form.end || hit) && <p className="text-xs text-soft">Also: {[form.segment && `segment ${form.segment}`, form.finish_reason, hit && `cache ${hit}`, form.start && `from ${form.start}`, form.end && `before ${form.end}`].filter(Boolean).join(', ')}</p>}
        <p className="text-xs text-soft">What is held out becomes a second dataset, for evaluation. Turns of one conversation, answers to one question and near-duplicates stay on one side. <A to="logs" query={Object.fromEntries(Object.entries(filters).map(([k, v]) => [k, String(v)]))}>Look at the exchanges in Logs</A></p>
        {matching.error && <Refusal error={matching.error} />}
        {make.error && <Refusal error={make.error} />}
      </form>
    </Dialog>
  )
}
