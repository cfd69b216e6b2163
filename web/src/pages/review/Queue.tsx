import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { useWorkspace } from '../../api/session'
import { oneOf, useQueryState } from '../../query'
import { Badge } from '../../ui/Badge'
import { CopyButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { A } from '../../ui/Link'
import { Page } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Tabs } from '../../ui/Tabs'
import { Progress, SkeletonLines } from '../../ui/Values'
import { queueQuery, type Queue } from './api'
import { Grading } from './Grading'
import { Items } from './Items'
import { People } from './People'
import { ProgressView } from './Progress'
import { Settings } from './Settings'

const schema = { view: oneOf(['grade', 'progress', 'items', 'people', 'settings'], 'grade') }

/** A queue: grading, and for those who manage it everything else. */
export default function QueuePage() {
  const workspace = useWorkspace()
  const { queue: id = '' } = useParams({ strict: false }) as { queue?: string }
  const [{ view }, set] = useQueryState(schema)
  const queue = useQuery(queueQuery(workspace.id, id))
  if (queue.error && !queue.data) {
    return <Page title="Review" above={<A to="review">Review</A>}><Refusal error={queue.error} retry={() => void queue.refetch()} /></Page>
  }
  const q = queue.data
  if (!q) return <Page title="Review"><SkeletonLines lines={8} /></Page>
  const tabs = [
    { value: 'grade', label: 'Grade', content: <GradeTab key={q.id} ws={workspace.id} queue={q} /> },
    { value: 'progress', label: 'Progress', content: <ProgressView ws={workspace.id} queue={q} /> },
    ...(q.may_manage ? [
      { value: 'items', label: 'Items', content: <Items ws={workspace.id} queue={q} /> },
      { value: 'people', label: 'People', content: <People ws={workspace.id} queue={q} /> },
      { value: 'settings', label: 'Settings', content: <Settings ws={workspace.id} queue={q} /> },
    ] : []),
  ]
  return (
    <Page title={q.name} above={<A to="review">Review</A>} aside={<>
      {q.closed_at && <Badge>closed</Badge>}
      {q.blind && <Badge title="Graders do not see what the judge said">blind</Badge>}
      <span className="hidden w-44 sm:block"><Progress label="Items that are done" done={q.counts.done} total={q.counts.items} /></span>
    </>} actions={<CopyButton small={false} label="Copy link" what="link to this queue"
      text={() => `${location.origin}/dashboard/w/${workspace.id}/review/${q.id}`} />}>
      <Tabs label="Views of the queue" value={tabs.some((tab) => tab.value === view) ? view : 'grade'} onChange={(next) => set({ view: next as typeof view }, { push: true })} tabs={tabs} />
    </Page>
  )
}

function GradeTab({ ws, queue }: { ws: string; queue: Queue }) {
  if (queue.closed_at) {
    return <EmptyState title="This queue is closed" text={queue.may_manage ? 'Its labels stay. Open it again in its settings.' : 'Its labels stay. An owner or admin can open it again.'} />
  }
  if (!queue.may_grade) {
    return <EmptyState title="You may look, and not grade" text="To grade in this queue you need a grant on it. An owner or admin of the workspace gives it, under People." />
  }
  return <Grading ws={ws} queue={queue} />
}
