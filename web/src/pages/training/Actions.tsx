import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { useAllowed } from '../../ui/Allowed'
import { Button } from '../../ui/Button'
import { Confirm } from '../../ui/Dialog'
import { Money } from '../../ui/Values'
import { isFinal, type Row } from './rows'

/** Pause, resume and end a run. What ends it is asked first. */
export function Actions({ of }: { of: Row }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell, fail } = useToast()
  const { may, why } = useAllowed()
  const [ending, setEnding] = useState(false)
  const [busy, setBusy] = useState(false)
  if (isFinal(of.status)) return null
  const params = { params: { path: { id: of.id } } }
  const done = async (said: string) => {
    await Promise.all(['training-run', 'ft-jobs', 'grpo-runs', 'wallet'].map((key) => client.invalidateQueries({ queryKey: [key, ws] })))
    tell(said)
  }
  const act = async (run: () => Promise<unknown>, said: string) => {
    setBusy(true)
    try {
      await run()
      await done(said)
    } catch (error) {
      fail(error)
    } finally {
      setBusy(false)
    }
  }
  const end = of.kind === 'grpo' ? 'Stop' : 'Cancel'
  return (
    <>
      {of.kind === 'job' && (of.status === 'RUNNING' || of.status === 'QUEUED') && (
        <Button disabled={!may} title={why} busy={busy} onClick={() => void act(() => data(v1(ws).POST('/v1/fine-tuning/jobs/{id}/pause', params)),
          of.status === 'RUNNING' ? 'It saves a checkpoint, and pauses' : 'It is paused')}>Pause</Button>
      )}
      {of.kind === 'job' && of.status === 'PAUSED' && (
        <Button look="primary" disabled={!may} title={why} busy={busy}
          onClick={() => void act(() => data(v1(ws).POST('/v1/fine-tuning/jobs/{id}/resume', params)), 'It goes on with the next free worker')}>Resume</Button>
      )}
      <Button look="danger" disabled={!may} title={why} onClick={() => setEnding(true)}>{end}</Button>
      <Confirm open={ending} onClose={() => setEnding(false)} danger action={`${end} it`} title={`${end} this run?`}
        text={of.kind === 'grpo'
          ? <>It ends, and its last checkpoint becomes a candidate: of a held run, the last that passed a check. What is left of <Money usd={of.budget} /> comes back. It does not begin again.</>
          : <>It ends without a model. Its checkpoints stay, what was trained is charged, and the rest of <Money usd={of.budget} /> comes back. To go on later, pause it instead.</>}
        run={async () => {
          if (of.kind === 'grpo') await data(v1(ws).POST('/v1/grpo/runs/{id}/stop', params))
          else await data(v1(ws).POST('/v1/fine-tuning/jobs/{id}/cancel', params))
          await done(of.kind === 'grpo' ? 'The run ends' : 'The job is cancelled')
        }} />
    </>
  )
}
