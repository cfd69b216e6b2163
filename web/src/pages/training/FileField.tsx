import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useId } from 'react'
import { data, upload, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { bytes, count } from '../../format'
import { SelectField } from '../../ui/Field'
import { Refusal } from '../../ui/Refusal'
import type { File as TrainingFile } from './api'
import { lineFaults } from './request'

/** Chooses an uploaded file of examples, or uploads one. What is wrong with its lines is said line by line. */
export function FileField({ value, onChange, label = 'File of examples', optional }: { value: string; onChange: (id: string, file?: TrainingFile) => void; label?: string; optional?: boolean }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const input = useId()
  const files = useQuery({
    queryKey: ['training-files', ws],
    queryFn: async ({ signal }) => (await data(v1(ws).GET('/v1/fine-tuning/files', { params: { query: { limit: 200 } }, signal }))) ?? [],
  })
  const send = useMutation({
    mutationFn: (file: File) => {
      const form = new FormData()
      form.set('purpose', 'fine-tune')
      form.set('file', file)
      return upload<TrainingFile>(ws, '/fine-tuning/files', form)
    },
    onSuccess: (made) => {
      client.setQueryData<TrainingFile[]>(['training-files', ws], (before) => [made, ...(before ?? [])])
      onChange(made.id, made)
    },
  })
  const faults = send.error ? lineFaults(send.error.message) : []
  return (
    <div>
      <SelectField label={label} value={value} onChange={(id) => onChange(id, files.data?.find((file) => file.id === id))} hint={optional ? 'Measures the loss on what is not trained on' : undefined}
        options={[{ value: '', label: optional ? 'None' : files.data?.length ? 'Choose one, or upload below' : 'None was uploaded yet' },
          ...(files.data ?? []).map((file) => ({ value: file.id, label: `${file.filename} · ${count(file.rows)} examples, ${file.format.replace('_', ' and ')}` }))]} />
      {!optional && <>
        <label htmlFor={input} className="mt-2 mb-1 block text-xs text-soft">Upload a file: one JSON object on a line, with messages; prompt and completion; or prompt, chosen and rejected</label>
        <input id={input} type="file" accept=".jsonl,.ndjson,.json,.txt" disabled={send.isPending} className="block max-w-full text-xs"
          onChange={(event) => {
            const file = event.target.files?.[0]
            if (file) send.mutate(file)
            event.target.value = '' // the same file can be chosen again, once it is mended
          }} />
        <div aria-live="polite" className="mt-2 text-sm">
          {send.isPending && <p className="text-soft">{send.variables.name}, {bytes(send.variables.size)}, is uploaded and checked…</p>}
          {send.error && (faults.length > 0 ? (
            <div role="alert" className="rounded-md border border-fail/40 bg-fail-ground px-3 py-2">
              <p className="font-medium">{send.variables?.name} was not taken. Mend these lines, and choose it again:</p>
              <ul className="mt-1 max-h-40 list-disc overflow-y-auto pl-4">{faults.map((fault, i) => <li key={i} className="break-words">{fault}</li>)}</ul>
            </div>
          ) : <Refusal error={send.error} />)}
          {send.data && send.data.id === value && <p className="text-pass">{send.data.filename}: {count(send.data.rows)} examples, every line is well.</p>}
        </div>
      </>}
    </div>
  )
}
