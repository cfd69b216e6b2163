import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { plural } from '../../format'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Dialog } from '../../ui/Dialog'
import { TextField } from '../../ui/Field'
import { Refusal } from '../../ui/Refusal'

interface Props { open: boolean; onClose: () => void; filters: Record<string, unknown>; total: number }

/** Freezes what the view shows into a dataset. */
export function DatasetDialog({ open, onClose, filters, total }: Props) {
  const ws = useWorkspaceId()
  const queries = useQueryClient()
  const { tell } = useToast()
  const [name, setName] = useState('')
  const [holdout, setHoldout] = useState('')
  const body = { name: name.trim(), filters, ...(holdout && { holdout_pct: Number(holdout) }) }
  const freeze = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/datasets/from_logs', { body: body as never })),
    onSuccess: (made) => {
      void queries.invalidateQueries({ queryKey: ['datasets', ws] })
      tell(`Frozen: ${made.name}`, { text: `${plural(made.rows, 'example')} from ${plural(made.curation.scanned, 'exchange')}` })
      onClose()
    },
  })
  return (
    <Dialog open={open} onClose={onClose} title="Freeze a dataset" text={`From the ${plural(total, 'exchange')} of this view: duplicates, errors and cut-off answers are left out, conversations become one example. It costs nothing.`}
      footer={<>
        <span className="mr-auto"><CurlButton call={{ method: 'POST', path: '/v1/datasets/from_logs', body }} /></span>
        <Button onClick={onClose}>Cancel</Button>
        <Button look="primary" type="submit" form="freeze" disabled={!name.trim()} busy={freeze.isPending}>Freeze</Button>
      </>}>
      <form id="freeze" className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        freeze.mutate()
      }}>
        <TextField label="Name" required value={name} onChange={(e) => setName(e.target.value)} autoComplete="off" />
        <TextField label="Holdout" type="number" min={1} max={50} step="any" inputMode="decimal" placeholder="none" value={holdout} onChange={(e) => setHoldout(e.target.value)}
          hint="Percent of the examples that go into a second dataset, for evals. No conversation is in both." />
        {freeze.error && <Refusal error={freeze.error} />}
      </form>
    </Dialog>
  )
}
