// A demo is a workspace of simulated traffic: a button makes it, a line on each of its pages says so, a click deletes it.
import { useMutation } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { SparklesIcon } from 'lucide-react'
import { useState } from 'react'
import { dash, data } from '../api/client'
import { sessionQuery, useSession, useWorkspace } from '../api/session'
import { useAllowed } from '../ui/Allowed'
import { Badge } from '../ui/Badge'
import { Button } from '../ui/Button'
import { Confirm } from '../ui/Dialog'
import { Refusal } from '../ui/Refusal'
import { queries } from './queries'
import { useToast } from './Toasts'

/** The line above the pages of a demo. */
export default function DemoLine() {
  const workspace = useWorkspace()
  const navigate = useNavigate()
  const { tell } = useToast()
  const { may, why } = useAllowed('own')
  const [asking, setAsking] = useState(false)
  const remove = useMutation({
    mutationFn: () => data(dash.DELETE('/dashboard/api/w/{workspace}/demo', { params: { path: { workspace: workspace.id } } })),
    onSuccess: async () => {
      tell('The demo is deleted', { text: 'What it stored goes now, in the background.' })
      await readSession()
      void navigate({ to: '/' })
    },
  })
  return (
    <div role="note" aria-label="Demo" className="no-print flex flex-wrap items-center gap-x-3 gap-y-1 border-b border-line bg-info-ground px-3 py-1.5 text-sm sm:px-6">
      <Badge tone="info">demo</Badge>
      <span className="min-w-0 flex-1 text-soft"><span className="sm:hidden">All simulated</span><span className="max-sm:hidden">Simulated traffic and play money. Grade, calibrate, repoint: nothing here is real.</span></span>
      <Button small disabled={!may} title={why} onClick={() => setAsking(true)}>Delete the demo</Button>
      <Confirm open={asking} onClose={() => setAsking(false)} danger action="Delete the demo" title="Delete the demo workspace?"
        text="Its logs, labels, judges, evals and aliases go, and its keys are refused. The ledger and the audit trail stay, as they always do."
        run={() => remove.mutateAsync()} />
    </div>
  )
}

/** Reads the session anew. One that is being read was asked for before the change, and is dropped. */
async function readSession() {
  await queries.cancelQueries({ queryKey: sessionQuery.queryKey })
  await queries.fetchQuery({ ...sessionQuery, staleTime: 0 })
}

/** Makes a demo, or finds the one that the reader has, and goes there. */
export function useMakeDemo() {
  const navigate = useNavigate()
  return useMutation({
    mutationFn: () => data(dash.POST('/dashboard/api/demo', {})),
    onSuccess: async (demo) => {
      await readSession()
      void navigate({ to: `/w/${demo.workspace_id}` as never })
    },
  })
}

/** On an empty workspace: the way to pages that are alive. */
export function DemoOffer() {
  const make = useMakeDemo()
  const has = useSession().data?.workspaces?.some((one) => one.demo)
  return (
    <section aria-label="A demo" className="card mb-4 flex flex-wrap items-center gap-x-4 gap-y-2 px-3.5 py-3">
      <SparklesIcon size={18} className="shrink-0 text-accent" aria-hidden />
      <div className="min-w-0 flex-1 basis-64">
        <h2 className="text-sm font-semibold">See every page alive first</h2>
        <p className="text-sm text-soft">A demo workspace beside this one: 676 simulated requests, graded by two people, a calibrated judge, evals, a canary, a
          queue for you to grade. It takes a minute, costs nothing, and one click deletes it.</p>
      </div>
      <Button look="primary" busy={make.isPending} onClick={() => make.mutate()}>{has ? 'Go to the demo' : 'Make a demo'}</Button>
      {make.error && <div className="basis-full"><Refusal error={make.error} /></div>}
    </section>
  )
}
