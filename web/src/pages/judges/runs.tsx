// What calibrations, scans and drafts share: a price before, progress meanwhile, and a way to stop.
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { data, v1 } from '../../api/client'
import type { components } from '../../api/v1'
import { useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { plural } from '../../format'
import { Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Dialog } from '../../ui/Dialog'
import { TextField } from '../../ui/Field'
import { Refusal } from '../../ui/Refusal'
import { Money, Price, Progress } from '../../ui/Values'
import { isRunning } from './api'

type Inquiry = components['schemas']['Inquiry']

export const notYours = 'An owner or admin of the workspace does this.'

/** What a run would cost. Nothing is started. */
export const useEstimate = (ws: string, inquiry: Inquiry, on = true) => useQuery({
  queryKey: ['estimate', ws, inquiry], enabled: on, staleTime: 10_000,
  queryFn: ({ signal }) => data(v1(ws).POST('/v1/criteria/estimates', { body: inquiry as never, signal })),
})

interface StartProps {
  title: string
  text: ReactNode
  action: string
  inquiry: Inquiry
  /** The public path and body, for the curl. */
  call: { path: string; body: Record<string, unknown> }
  run: (maxCost: number | undefined) => Promise<unknown>
  onClose: () => void
  disabled?: boolean
  children?: ReactNode
}

/** Starts a run that spends: its estimate is shown before, and may be bounded. */
export function Start({ title, text, action, inquiry, call, run, onClose, disabled, children }: StartProps) {
  const workspace = useWorkspace()
  const estimate = useEstimate(workspace.id, inquiry, workspace.manages && !disabled)
  const [most, setMost] = useState('')
  const bound = most.trim() === '' ? undefined : Number(most)
  const start = useMutation({ mutationFn: () => run(bound), onSuccess: onClose })
  return (
    <Dialog open onClose={onClose} title={title} text={text} footer={<>
      <CurlButton call={{ method: 'POST', path: call.path, body: { ...call.body, ...(bound !== undefined && { max_cost_usd: bound }) } }} />
      <span className="mr-auto text-sm">
        {estimate.error ? null : <><Price usd={estimate.data?.cost_usd} loading={estimate.isFetching && !estimate.data} />
          {estimate.data && <span className="text-xs text-faint"> · {plural(estimate.data.calls, 'call')}</span>}</>}
      </span>
      <Button onClick={onClose}>Cancel</Button>
      <Button look="primary" busy={start.isPending} disabled={!workspace.manages || disabled || Boolean(estimate.error)} title={workspace.manages ? undefined : notYours}
        type="submit" form="start-run">{action}</Button>
    </>}>
      <form id="start-run" className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        start.mutate()
      }}>
        {children}
        <TextField label="Stop at (USD)" hint="Starts nothing whose estimate is higher, and stops when that much is spent. Empty: no bound but the wallet."
          type="number" min={0} step="any" value={most} onChange={(event) => setMost(event.target.value)} />
        {!workspace.manages && <p className="text-sm text-soft">{notYours}</p>}
        {estimate.error && <Refusal error={estimate.error} title="It cannot be started now" />}
        {start.error && <Refusal error={start.error} />}
      </form>
    </Dialog>
  )
}

export interface Run {
  id: string; status: string; progress: { done: number; total: number }; cost_usd: number; estimated_cost_usd: number; error: string | null; created_at: string
}

/** A run's state in a line; one that is running can be cancelled. */
export function RunState({ run, label, cancel }: { run: Run; label: string; cancel: () => Promise<unknown> }) {
  const { fail } = useToast()
  const { manages } = useWorkspace()
  const stop = useMutation({ mutationFn: cancel, onError: fail })
  return (
    <div className="text-sm">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <Status value={run.status} />
        {isRunning(run) ? <>
          <div className="min-w-40 flex-1"><Progress label={label} done={run.progress.done} total={run.progress.total} /></div>
          <span className="text-xs text-soft"><Money usd={run.cost_usd} /> of about <Money usd={run.estimated_cost_usd} /></span>
          {manages && <Button small busy={stop.isPending} onClick={() => stop.mutate()}>Cancel</Button>}
        </> : <span className="text-xs text-soft">cost <Money usd={run.cost_usd} /></span>}
      </div>
      {run.error && <p className="mt-1 break-words text-fail">{run.error}</p>}
    </div>
  )
}
