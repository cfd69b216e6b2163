import { useWorkspace } from '../../api/session'
import { oneOf, useQueryState } from '../../query'
import { Page } from '../../ui/Page'
import { Tabs } from '../../ui/Tabs'
import { useForward } from '../../forward'
import { Endpoints } from '../endpoints/Endpoints'
import { Rounds } from './Rounds'
import { Runs } from './Runs'
import { Tools } from './Tools'
import { Versions } from './Versions'

const tabs = [
  { value: 'runs', label: 'Runs', content: <Runs /> },
  { value: 'models', label: 'Models', content: <Versions /> },
  { value: 'endpoints', label: 'Endpoints', content: <Endpoints /> },
  { value: 'rounds', label: 'RAFT', content: <Rounds /> },
  { value: 'tools', label: 'Environment tools', content: <Tools /> },
]

const forMembers = ['runs', 'endpoints']
const schema = { tab: oneOf(tabs.map((tab) => tab.value), 'runs') }

/** Training: what runs, what came out of it, and what it uses. Members see fine-tuning jobs and endpoints. */
export default function Training() {
  const { manages } = useWorkspace()
  const [state, set] = useQueryState(schema)
  useForward(['run'], 'training/runs')
  const shown = tabs.filter((tab) => manages || forMembers.includes(tab.value))
  const chosen = shown.some((tab) => tab.value === state.tab) ? state.tab : 'runs'
  return (
    <Page title="Training">
      <Tabs label="Training" value={chosen} onChange={(tab) => set({ tab }, { push: true })} tabs={shown} />
    </Page>
  )
}
