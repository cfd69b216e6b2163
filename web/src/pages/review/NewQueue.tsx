import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { call, data, v1 } from '../../api/client'
import { useToast } from '../../app/Toasts'
import { Button } from '../../ui/Button'
import { Dialog } from '../../ui/Dialog'
import { Field, SelectField, TextField } from '../../ui/Field'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'
import type { Queue, Source } from './api'
import { cleanSource, kinds } from './source'
import { SourceFields, usePreview } from './SourceFields'

interface Props { ws: string; onClose: () => void; criterion: string; source: Source }

/** Makes a queue. It costs nothing: people grade, and no model is called. */
export function NewQueue({ ws, onClose, criterion: given, source: from }: Props) {
  const queries = useQueryClient()
  const navigate = useNavigate()
  const { tell } = useToast()
  const [criterion, setCriterion] = useState(given)
  const [source, setSource] = useState(from)
  const [name, setName] = useState('')
  const [instructions, setInstructions] = useState('')
  const [graders, setGraders] = useState('1')
  const [blind, setBlind] = useState(true)
  const preview = usePreview(ws, source, criterion)
  const judges = useQuery({
    queryKey: ['criteria', ws],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria', { params: { query: { limit: 200 } }, signal })),
  })
  const make = useMutation({
    mutationFn: () => call<Queue>(ws, 'POST', '/queues', { body: {
      name: name.trim(), source: cleanSource(source), graders_per_item: Number(graders), blind,
      ...(criterion && { criterion_id: criterion }), ...(instructions.trim() && { instructions: instructions.trim() }),
    } }),
    onSuccess: (queue) => {
      void queries.invalidateQueries({ queryKey: ['queues', ws] })
      tell('Queue made', { text: 'Its items are being added.' })
      void navigate({ to: `/w/${ws}/review/${queue.id}` as never })
    },
  })
  const lacksJudge = Boolean(kinds.find((kind) => kind.value === source.kind)?.needsJudge) && !criterion
  return (
    <Dialog open wide onClose={onClose} title="New review queue" text="People grade one item after another; each grade is a label. Free: no model is called." footer={<>
      <span className="mr-auto text-sm text-soft" aria-live="polite">{preview}</span>
      <Button onClick={onClose}>Cancel</Button>
      <Button look="primary" type="submit" form="new-queue" busy={make.isPending} disabled={lacksJudge}>Make the queue</Button>
    </>}>
      <form id="new-queue" className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        make.mutate()
      }}>
        <div className="grid gap-3 sm:grid-cols-2">
          <TextField label="Name" required maxLength={100} value={name} onChange={(e) => setName(e.target.value)} autoFocus />
          <SelectField label="For the judge" hint="Its rubric is shown to graders" value={criterion} onChange={setCriterion}
            options={[{ value: '', label: 'none' }, ...(judges.data?.data ?? []).map((judge) => ({ value: judge.id, label: judge.name }))]} />
        </div>
        <SourceFields ws={ws} source={source} onChange={setSource} criterion={criterion} />
        <Field label="Instructions" hint="What graders are told beside the rubric; may be empty">
          {(props) => <textarea {...props} rows={2} maxLength={8000} className="control w-full" value={instructions} onChange={(e) => setInstructions(e.target.value)} />}
        </Field>
        <div className="grid items-start gap-3 sm:grid-cols-2">
          <SelectField label="Graders per item" hint="Two or more tell how far people agree" value={graders} onChange={setGraders} options={['1', '2', '3', '4', '5']} />
          <div className="sm:pt-6"><Switch label="Blind" hint="Graders do not see what the judge said" on={blind} onChange={setBlind} /></div>
        </div>
        {make.error && <Refusal error={make.error} />}
      </form>
    </Dialog>
  )
}
