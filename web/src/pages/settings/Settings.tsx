import { useMutation } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { call } from '../../api/client'
import { sessionQuery, useSession, useWorkspace } from '../../api/session'
import { queries } from '../../app/queries'
import { useToast } from '../../app/Toasts'
import { oneOf, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Button } from '../../ui/Button'
import { Confirm } from '../../ui/Dialog'
import { Page, Section } from '../../ui/Page'
import { Tabs } from '../../ui/Tabs'
import { Account } from './Account'
import { Audit } from './Audit'
import { Evidence } from './Evidence'
import { Keys } from './Keys'
import { LimitsTab } from './LimitsTab'
import { Logging } from './Logging'
import { Notifications } from './Notifications'
import { Providers } from './Providers'
import { Team } from './Team'

const tabs = [
  { value: 'keys', label: 'Keys', content: <Keys /> },
  { value: 'team', label: 'Team', content: <Team /> },
  { value: 'logging', label: 'Logging and consent', content: <Logging /> },
  { value: 'limits', label: 'Limits', content: <LimitsTab /> },
  { value: 'providers', label: 'Providers', content: <Providers /> },
  { value: 'evidence', label: 'Evidence', content: <Evidence /> },
  { value: 'notifications', label: 'Notifications', content: <Notifications /> },
  { value: 'account', label: 'You', content: <Account /> },
  { value: 'audit', label: 'Audit', content: <Audit /> },
]

const schema = { tab: oneOf(tabs.map((tab) => tab.value), 'keys') }

export default function Settings() {
  const ws = useWorkspace()
  const [state, set] = useQueryState(schema)
  return (
    <Page title="Settings" aside={<span className="truncate">{ws.name}</span>}>
      <DemoNote />
      <Tabs label="Settings" value={state.tab} onChange={(tab) => set({ tab }, { push: true })} tabs={tabs} />
    </Page>
  )
}

/** A demo workspace says so, and is deleted by one click. */
function DemoNote() {
  const ws = useWorkspace()
  const navigate = useNavigate()
  const { tell } = useToast()
  const { may, why } = useAllowed('own')
  const [asking, setAsking] = useState(false)
  const isDemo = (useSession().data?.workspaces?.find((one) => one.id === ws.id) as { demo?: boolean } | undefined)?.demo
  const remove = useMutation({
    mutationFn: () => call(ws.id, 'DELETE', '/demo'),
    onSuccess: async () => {
      tell('The demo is being deleted')
      await queries.fetchQuery({ ...sessionQuery, staleTime: 0 })
      void navigate({ to: '/' })
    },
  })
  if (!isDemo) return null
  return (
    <Section title="This is a demo" actions={<Button look="danger" disabled={!may} title={why} onClick={() => setAsking(true)}>Delete the demo</Button>}>
      <p className="text-sm text-soft">Its traffic is simulated and its money is play money. Everything of it can be deleted by one click.</p>
      <Confirm open={asking} onClose={() => setAsking(false)} danger action="Delete the demo" title="Delete the demo workspace?"
        text="Its logs, labels, judges, evals and aliases go, and its keys are refused. The ledger and the audit trail stay, as they always do."
        run={() => remove.mutateAsync()} />
    </Section>
  )
}
