import { useWorkspace } from '../../api/session'
import { oneOf, useQueryState } from '../../query'
import { Page } from '../../ui/Page'
import { Tabs } from '../../ui/Tabs'
import { useForward } from '../../forward'
import { Rounds } from './Rounds'
import { Runs } from './Runs'
import { Tools } from './Tools'
import { Versions } from './Versions'

const tabs = [
  { value: 'runs', label: 'Runs', content: <Runs /> },
  { value: 'models', label: 'Models', content: <Versions /> },
  { value: 'rounds', label: 'RAFT', content: <Rounds /> },
  { value: 'tools', label: 'Environment tools', content: <Tools /> },
]

const schema = { tab: oneOf(tabs.map((tab) => tab.value), 'runs') }

/** Training: what runs, what came out of it, and what it uses. Members see fine-tuning jobs alone. */
export default function Training() {
  const { manages } = useWorkspace()
  const [state, set] = useQueryState(schema)
  useForward(['run'], 'training/runs')
  return (
    <Page title="Training">
      {manages ? <Tabs label="Training" value={state.tab} onChange={(tab) => set({ tab }, { push: true })} tabs={tabs} /> : <Runs />}
    </Page>
  )
}
