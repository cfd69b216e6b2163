import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useToast } from '../../app/Toasts'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Dialog } from '../../ui/Dialog'
import { Field, SelectField, TextField } from '../../ui/Field'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'
import { modelsQuery, type Judge } from './api'

interface Props { ws: string; judge?: Judge; draft?: { name?: string; rubric?: string; scale?: string }; onClose: () => void; onDone: (judge: Judge) => void }

/** Makes a judge, or changes one. A change of what the judge is told is a new version. */
export function JudgeForm({ ws, judge, draft, onClose, onDone }: Props) {
  const queries = useQueryClient()
  const { tell } = useToast()
  const models = useQuery(modelsQuery(ws))
  const [form, setForm] = useState({
    name: judge?.name ?? draft?.name ?? '', rubric: judge?.rubric ?? draft?.rubric ?? '', judge_model: judge?.judge_model ?? '',
    scale: judge?.scale ?? (draft?.scale === 'graded' ? 'graded' : 'binary'), pass_threshold: String(judge?.pass_threshold ?? 0.5), few_shot: judge?.few_shot ?? false,
  })
  const chats = (models.data?.data ?? []).filter((model) => model.kind === 'chat' && !model.target_model)
  const model = form.judge_model || chats[0]?.id || ''
  const body = {
    name: form.name.trim(), rubric: form.rubric, judge_model: model, scale: form.scale as 'binary' | 'graded', few_shot: form.few_shot,
    ...(form.scale === 'graded' && { pass_threshold: Number(form.pass_threshold) }),
  }
  const save = useMutation({
    mutationFn: async (): Promise<Judge> => judge
      ? await data(v1(ws).PATCH('/v1/criteria/{id}', { params: { path: { id: judge.id } }, body }))
      : await data(v1(ws).POST('/v1/criteria', { body })),
    onSuccess: (done) => {
      for (const key of ['criteria', 'criterion', 'certificate', 'judge history']) void queries.invalidateQueries({ queryKey: [key, ws] })
      tell(judge ? (done.version !== judge.version ? `Saved as version ${done.version}` : 'Saved') : 'Judge made')
      onDone(done)
    },
  })
  return (
    <Dialog open wide onClose={onClose} title={judge ? `Change ${judge.name}` : 'New judge'}
      text={judge ? 'A change of rubric, model, scale, threshold or examples is a new version, and voids the certificate.' : 'A judge applies a rubric to what models answer. To make one is free; calibrations and scans cost.'}
      footer={<><CurlButton call={{ method: judge ? 'PATCH' : 'POST', path: `/v1/criteria${judge ? `/${judge.id}` : ''}`, body }} />
        <Button onClick={onClose}>Cancel</Button><Button look="primary" type="submit" form="judge-form" busy={save.isPending}>{judge ? 'Save' : 'Make the judge'}</Button></>}>
      <form id="judge-form" className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        save.mutate()
      }}>
        <div className="grid gap-3 sm:grid-cols-2">
          <TextField label="Name" required maxLength={64} value={form.name} onChange={(e) => setForm({ ...form, name: e.target.value })} />
          <SelectField label="Model" value={model} onChange={(judge_model) => setForm({ ...form, judge_model })}
            options={chats.map((one) => ({ value: one.id, label: one.simulated ? `${one.id} (simulated)` : one.id }))} />
        </div>
        <Field label="Rubric" hint="What makes an answer pass. Say what fails, too: people and judge read the same text.">
          {(props) => <textarea {...props} rows={8} required className="control w-full" value={form.rubric} onChange={(e) => setForm({ ...form, rubric: e.target.value })} />}
        </Field>
        <div className="grid items-start gap-3 sm:grid-cols-3">
          <SelectField label="Scale" value={form.scale} onChange={(scale) => setForm({ ...form, scale: scale as 'binary' | 'graded' })}
            options={[{ value: 'binary', label: 'binary: the verdict decides' }, { value: 'graded', label: 'graded: the grade decides' }]} />
          {form.scale === 'graded' && <TextField label="Passes from" type="number" min={0} max={1} step="any" required value={form.pass_threshold} onChange={(e) => setForm({ ...form, pass_threshold: e.target.value })} />}
          <div className="sm:pt-6"><Switch label="Show examples" hint="Six graded ones of the tuning half, chosen at calibration" on={form.few_shot} onChange={(few_shot) => setForm({ ...form, few_shot })} /></div>
        </div>
        {save.error && <Refusal error={save.error} />}
      </form>
    </Dialog>
  )
}
