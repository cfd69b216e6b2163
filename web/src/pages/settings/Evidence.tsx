import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { ReadOnly, useAllowed } from '../../ui/Allowed'
import { Button } from '../../ui/Button'
import { SelectField, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'
import { SkeletonLines } from '../../ui/Values'
import type { EvidencePolicy } from './shapes'

export function usePolicy() {
  const ws = useWorkspaceId()
  return useQuery({ queryKey: ['evidence', ws], queryFn: ({ signal }) => call<EvidencePolicy>(ws, 'GET', '/evidence', { signal }) })
}

const fields = ['max_age_days', 'max_regression', 'confidence', 'max_unproven_canary_percent'] as const

/** Which proof is asked for before an alias is repointed. */
export function Evidence() {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const { may, why } = useAllowed('own')
  const policy = usePolicy()
  const [form, setForm] = useState<Record<string, string>>({})
  useEffect(() => {
    if (policy.data) setForm(Object.fromEntries(fields.map((name) => [name, String(policy.data[name])])))
  }, [policy.data])
  const put = async (body: Partial<EvidencePolicy>) =>
    client.setQueryData(['evidence', ws], await call<EvidencePolicy>(ws, 'PATCH', '/evidence', { body }))
  const save = useMutation({
    mutationFn: ({ body }: { body: Partial<EvidencePolicy>; undo: Partial<EvidencePolicy> }) => put(body),
    onSuccess: (_, { undo }) => tell('The policy is in force', { undo: () => put(undo) }),
  })
  if (policy.error) return <Refusal error={policy.error} retry={() => void policy.refetch()} />
  if (!policy.data) return <SkeletonLines />
  const now = policy.data
  const set = (body: Partial<EvidencePolicy>) => save.mutate({
    body, undo: Object.fromEntries(Object.keys(body).map((name) => [name, now[name as keyof EvidencePolicy]])),
  })
  const changed = fields.filter((name) => form[name] !== undefined && Number(form[name]) !== now[name])
  const broken = fields.filter((name) => form[name] !== undefined && !/^\d+(\.\d+)?$/.test(form[name]!))
  const field = (name: (typeof fields)[number]) => ({
    value: form[name] ?? '', disabled: !may, inputMode: 'decimal' as const, error: broken.includes(name) ? 'Must be a number' : undefined,
    onChange: (event: { target: { value: string } }) => setForm({ ...form, [name]: event.target.value.trim() }),
  })
  return (
    <Section title="Evidence policy" aside={now.required ? 'a repoint needs a proof' : 'a repoint needs no proof'}>
      <ReadOnly need="own" />
      <div className="space-y-4">
        <Switch label="A repoint of an alias needs a proof" on={now.required} disabled={!may || save.isPending}
          hint="A gate’s verdict, or an eval by a trusted judge, that the new model is not worse. Going back to the model before needs none."
          onChange={(required) => set({ required })} />
        <form className="space-y-3" onSubmit={(event) => {
          event.preventDefault()
          set(Object.fromEntries(changed.map((name) => [name, Number(form[name])])))
        }}>
          <div className="grid gap-3 sm:grid-cols-2">
            <SelectField label="The judge’s tier, at least" value={now.min_trust} disabled={!may} hint="As it is now, not when the eval was made"
              options={['provisional', 'measured', 'calibrated', 'certified']}
              onChange={(value) => set({ min_trust: value as EvidencePolicy['min_trust'] })} />
            <TextField label="A proof is at most this many days old" {...field('max_age_days')} />
            <TextField label="How much lower the true pass rate may be" hint="0.05 is five points" {...field('max_regression')} />
            <TextField label="Confidence of the proof" hint="Shared by all evals of the pair: repeating until one passes proves nothing" {...field('confidence')} />
            <TextField label="A canary up to this percent needs no proof" {...field('max_unproven_canary_percent')} />
          </div>
          {save.error && <Refusal error={save.error} />}
          <div className="flex items-center gap-3">
            <Button type="submit" look="primary" title={why} disabled={!may || changed.length === 0 || broken.length > 0} busy={save.isPending}>Save</Button>
            <A to="aliases" className="link text-sm">What it means for each alias</A>
          </div>
        </form>
      </div>
    </Section>
  )
}
