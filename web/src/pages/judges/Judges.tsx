import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { PlusIcon, SparklesIcon } from 'lucide-react'
import { useEffect } from 'react'
import { curl } from '../../api/curl'
import { useWorkspace } from '../../api/session'
import { useKeys } from '../../keys'
import { flag, text, useQueryState } from '../../query'
import { count, plural } from '../../format'
import { Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { Page } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { SkeletonLines, Time } from '../../ui/Values'
import { judgesQuery, type Judge } from './api'
import { JudgeForm } from './JudgeForm'
import { needSentence, rank, tiers } from './ladder'
import { Suggestions } from './Suggestions'

const schema = { new: flag, criterion: text(), suggest: flag }

const columns: Column<Judge>[] = [
  { id: 'name', header: 'Judge', width: 'minmax(180px,1.6fr)', card: 'title', cell: (j) => <span className="font-medium">{j.name}</span> },
  { id: 'trust', header: 'Trust', width: '150px', card: 'title', cell: (j) => <span className="inline-flex items-center gap-2"><Rungs judge={j} /><Status value={j.trust} /></span> },
  { id: 'labels', header: 'Labels', width: 'minmax(150px,1fr)', cell: (j) => <span>{count(j.labels.pass)} pass, {count(j.labels.fail)} fail</span> },
  { id: 'next', header: 'Next', width: 'minmax(210px,1.6fr)', card: 'none', cell: (j) => <span className="text-soft">{nextStep(j)}</span> },
  { id: 'model', header: 'Model', width: 'minmax(120px,.8fr)', card: 'none', cell: (j) => <code className="font-mono text-xs">{j.judge_model}</code> },
  { id: 'watch', header: 'Monitors', width: '80px', card: 'none', cell: (j) => j.monitoring?.enabled ? `${j.monitoring.sample_percent ?? 100} %` : <span className="text-faint">no</span> },
  { id: 'changed', header: 'Changed', width: '110px', card: 'none', cell: (j) => <Time value={j.updated_at} relative /> },
]

/** The tier as rungs of a ladder. */
const Rungs = ({ judge }: { judge: Judge }) => (
  <span aria-hidden className="inline-flex gap-0.5">
    {tiers.map((tier, i) => <span key={tier} className={`h-3 w-1.5 rounded-xs ${i < rank(judge.trust) ? 'bg-accent' : 'bg-line'}`} />)}
  </span>
)

function nextStep(judge: Judge): string {
  if (judge.trust === 'none' || judge.trust === 'provisional') return needSentence(judge.labels) || (judge.certificate_id ? 'calibrate again' : 'calibrate')
  return judge.trust === 'certified' ? '–' : judge.trust === 'calibrated' ? 'more labels narrow the bounds' : '50 of each, 0.90 or better'
}

export default function Judges() {
  const workspace = useWorkspace()
  const navigate = useNavigate()
  const [state, set] = useQueryState(schema)
  const list = useQuery(judgesQuery(workspace.id))
  const open = (id: string, search = {}) => void navigate({ to: `/w/${workspace.id}/judges/${id}` as never, search: search as never })
  useEffect(() => { // alarms and jobs name a judge in the query
    if (state.criterion) void navigate({ to: `/w/${workspace.id}/judges/${state.criterion}` as never, replace: true })
  }, [state.criterion, navigate, workspace.id])
  useKeys('Judges', [{ keys: 'n', label: 'New judge', run: () => set({ new: true }) }], workspace.manages)
  const rows = list.data?.data ?? []
  return (
    <Page title="Judges" aside={list.data && plural(rows.length, 'judge')} actions={<>
      <CurlButton small={false} call={{ path: '/v1/criteria' }} />
      {workspace.manages && <Button icon={<SparklesIcon size={14} />} onClick={() => set({ suggest: true })}>Suggest</Button>}
      {workspace.manages && <Button look="primary" icon={<PlusIcon size={14} />} onClick={() => set({ new: true })}>New judge</Button>}
    </>}>
      {list.error && <Refusal error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <SkeletonLines />}
      {list.data && rows.length === 0 && (
        <EmptyState title="No judge yet" text={<>A judge grades what models answer by a rubric. People’s labels measure how often it is right; with enough of them it gets a certificate. {!workspace.manages && 'An owner or admin makes judges.'}</>}
          snippet={curl({ method: 'POST', path: '/v1/criteria', body: { name: 'helpful', rubric: 'The answer does what the user asked for.', judge_model: 'sim/judge' } })}
          action={workspace.manages && <Button look="primary" onClick={() => set({ new: true })}>Make a judge</Button>} />
      )}
      {rows.length > 0 && <div className="card mb-4"><Table label="Judges" keys columns={columns} rows={rows} rowKey={(j) => j.id} onOpen={(j) => open(j.id)} /></div>}
      <Suggestions ws={workspace.id} starting={state.suggest} onStart={(suggest) => set({ suggest })} />
      {state.new && workspace.manages && <JudgeForm ws={workspace.id} onClose={() => set({ new: false })} onDone={(judge) => open(judge.id)} />}
    </Page>
  )
}
