import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { ThumbsDownIcon, ThumbsUpIcon } from 'lucide-react'
import { useRef, useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { useKeys } from '../../keys'
import { Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Field, SelectField } from '../../ui/Field'
import { Refusal } from '../../ui/Refusal'
import { Time } from '../../ui/Values'

type Subject = { request_id: string } | { trace_id: string }
type Verdict = 'pass' | 'fail'

const lastJudge = 'grade.criterion' // the judge that was chosen last, so that fifty can be graded in a row

/** Grades an exchange or a whole run: 1 passes, 0 fails, c writes a critique. */
export function Grade({ subject, onGraded, keys = true }: { subject: Subject; onGraded?: () => void; keys?: boolean }) {
  const workspace = useWorkspace()
  const queries = useQueryClient()
  const { tell } = useToast()
  const [criterion, setCriterion] = useState(() => sessionStorage.getItem(lastJudge) ?? '')
  const [critique, setCritique] = useState('')
  const box = useRef<HTMLTextAreaElement>(null)
  const api = v1(workspace.id)
  const key = ['labels', workspace.id, subject]

  const judges = useQuery({
    queryKey: ['criteria', workspace.id],
    queryFn: ({ signal }) => data(api.GET('/v1/criteria', { params: { query: { limit: 200 } }, signal })),
  })
  const labels = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => data(api.GET('/v1/labels', { params: { query: { ...subject, limit: 20 } }, signal })),
  })
  const body = (verdict: Verdict) => ({
    ...subject, verdict, ...(criterion && { criterion_id: criterion }), ...(critique.trim() && { critique: critique.trim() }), source: 'dashboard',
  })
  const grade = useMutation({
    mutationFn: (verdict: Verdict) => data(api.POST('/v1/labels', { body: body(verdict) as never })),
    onSuccess: (made, verdict) => {
      setCritique('')
      void queries.invalidateQueries({ queryKey: key })
      const id = (made as { id?: string }).id
      tell(verdict === 'pass' ? 'Graded: pass' : 'Graded: fail', {
        undo: id === undefined ? undefined : async () => {
          await data(api.DELETE('/v1/labels/{id}', { params: { path: { id } } }))
          void queries.invalidateQueries({ queryKey: key })
        },
      })
      onGraded?.()
    },
  })
  const may = workspace.manages && !grade.isPending
  useKeys('Grade', [
    { keys: '1', label: 'Pass', run: () => may && grade.mutate('pass') },
    { keys: '0', label: 'Fail', run: () => may && grade.mutate('fail') },
    { keys: 'c', label: 'Write a critique', run: () => box.current?.focus() },
  ], keys && workspace.manages)

  return (
    <div data-keys="Grade" className="space-y-3">
      {labels.data && labels.data.data.length > 0 && (
        <ul className="space-y-1 text-sm">
          {labels.data.data.map((label) => (
            <li key={label.id} className="flex flex-wrap items-center gap-2">
              <Status value={label.verdict} /> <span className="text-soft">{label.author}</span>
              {label.critique && <span className="min-w-0 break-words">“{label.critique}”</span>}
              <span className="ml-auto text-xs text-faint"><Time value={label.created_at} relative /></span>
            </li>
          ))}
        </ul>
      )}
      {!workspace.manages ? (
        <p className="text-sm text-soft">Grading here needs an owner or admin of the workspace; reviewers grade in the queues that were opened to them.</p>
      ) : <>
        <div className="grid gap-3 sm:grid-cols-[220px_1fr]">
          <SelectField label="For the judge" value={criterion} onChange={(value) => {
            setCriterion(value)
            sessionStorage.setItem(lastJudge, value)
          }} options={[{ value: '', label: 'none' }, ...(judges.data?.data ?? []).map((j) => ({ value: j.id, label: j.name }))]} />
          <Field label="Critique">
            {(props) => <textarea {...props} ref={box} rows={2} className="control w-full" value={critique} onChange={(e) => setCritique(e.target.value)}
              placeholder="Why; judges learn from it" />}
          </Field>
        </div>
        <div className="flex flex-wrap items-center gap-2">
          <Button icon={<ThumbsUpIcon size={14} />} disabled={!may} onClick={() => grade.mutate('pass')}>Pass {keys && <kbd className="kbd">1</kbd>}</Button>
          <Button icon={<ThumbsDownIcon size={14} />} disabled={!may} onClick={() => grade.mutate('fail')}>Fail {keys && <kbd className="kbd">0</kbd>}</Button>
          <CurlButton call={{ method: 'POST', path: '/v1/labels', body: body('pass') }} />
        </div>
      </>}
      {grade.error && <Refusal error={grade.error} />}
    </div>
  )
}
