import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { count } from '../../format'
import { ReadOnly, useAllowed } from '../../ui/Allowed'
import { Button } from '../../ui/Button'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Progress, SkeletonLines } from '../../ui/Values'
import { checkLimits, noLimits, toChange, toForm } from './limits'
import { LimitsFields } from './LimitsFields'
import { Defaults } from './Logging'
import type { Limits, Quota } from './shapes'

/** The limits of the whole workspace, its defaults, and how much it may store. */
export function LimitsTab() {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const { may, why } = useAllowed('own')
  const limits = useQuery({ queryKey: ['limits', ws], queryFn: ({ signal }) => call<Limits>(ws, 'GET', '/limits', { signal }) })
  const before = limits.data ? toForm(limits.data) : noLimits
  const [form, setForm] = useState(noLimits)
  useEffect(() => {
    if (limits.data) setForm(toForm(limits.data))
  }, [limits.data])
  const change = toChange(form, before)
  const put = async (body: Record<string, unknown>) =>
    client.setQueryData(['limits', ws], await call<Limits>(ws, 'PATCH', '/limits', { body }))
  const save = useMutation({
    mutationFn: () => put(change),
    onSuccess: () => {
      const undo = toChange(before, form)
      tell('The limits are in force', { undo: () => put(undo) })
    },
  })
  return (
    <>
      <Section title="Limits of the workspace" aside="all keys together">
        <ReadOnly need="own" />
        {limits.error && <Refusal error={limits.error} retry={() => void limits.refetch()} />}
        {limits.isPending && <SkeletonLines />}
        {limits.data && (
          <form className="space-y-3" onSubmit={(event) => {
            event.preventDefault()
            save.mutate()
          }}>
            <LimitsFields form={form} onChange={setForm} disabled={!may} />
            {save.error && <Refusal error={save.error} />}
            <Button type="submit" look="primary" title={why} busy={save.isPending}
              disabled={!may || Object.keys(change).length === 0 || Object.keys(checkLimits(form)).length > 0}>Save</Button>
          </form>
        )}
      </Section>
      <Defaults />
      <Quotas />
    </>
  )
}

function Quotas() {
  const ws = useWorkspaceId()
  const quotas = useQuery({
    queryKey: ['quotas', ws], queryFn: ({ signal }) => call<{ quotas: Quota[] }>(ws, 'GET', '/quotas', { signal }),
  })
  return (
    <Section title="What is stored" aside="the operator of the server sets how much may be">
      {quotas.error && <Refusal error={quotas.error} retry={() => void quotas.refetch()} />}
      {quotas.isPending && <SkeletonLines />}
      <ul className="grid gap-x-8 gap-y-1.5 sm:grid-cols-2">
        {quotas.data?.quotas.map((row) => (
          <li key={row.kind} className="grid grid-cols-[minmax(0,1fr)_minmax(0,1.4fr)] items-center gap-3 text-sm">
            <span className="truncate">{row.kind.replaceAll('_', ' ').replace(/ kib$/, ', KiB').replace('topups', 'top-ups')}</span>
            {row.quota > 0 ? <Progress done={row.stored} total={row.quota} label={row.kind} />
              : <span className="text-xs text-soft">{count(row.stored)}, without a limit</span>}
          </li>
        ))}
      </ul>
    </Section>
  )
}
