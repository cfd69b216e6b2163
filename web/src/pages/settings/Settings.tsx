import { useWorkspace } from '../../api/session'
import { oneOf, useQueryState } from '../../query'
import { Page } from '../../ui/Page'
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
      <Tabs label="Settings" value={state.tab} onChange={(tab) => set({ tab }, { push: true })} tabs={tabs} />
    </Page>
  )
}
