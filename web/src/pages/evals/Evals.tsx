import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { FlaskConicalIcon } from 'lucide-react'
import { data, v1 } from '../../api/client'
import { curl } from '../../api/curl'
import { useWorkspaceId } from '../../api/session'
import { useCommands } from '../../app/commands'
import { useForward } from '../../forward'
import { count, percent } from '../../format'
import { useKeys } from '../../keys'
import { flag, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, Progress, SkeletonLines, Time } from '../../ui/Values'
import type { Eval } from './gate'
import { NewEval } from './NewEval'

export const isRunning = (run: { status: string }) => run.status === 'QUEUED' || run.status === 'RUNNING'

/** What an eval has found about its best candidate, in a few words. */
export function found(run: Eval): string {
  const best = [...run.candidates].sort((a, b) => (b.difference ?? b.win_rate ?? -1) - (a.difference ?? a.win_rate ?? -1))[0]
  if (!best) return ''
  if (best.win_rate !== null && best.win_rate !== undefined) return `${best.model} wins ${percent(best.win_rate, 0)}`
  if (best.difference !== null && best.difference !== undefined) {
    return `${best.model} ${best.difference >= 0 ? '+' : '−'}${Math.abs(best.difference * 100).toFixed(1)} points`
  }
  return ''
}

const columns: Column<Eval>[] = [
  { id: 'name', header: 'Name', width: 'minmax(140px,1.4fr)', cell: (run) => <span className="font-medium">{run.name}</span>, card: 'title' },
  { id: 'status', header: 'Status', width: '100px', cell: (run) => <Status value={run.status} />, card: 'title' },
  { id: 'baseline', header: 'Baseline', width: 'minmax(110px,1fr)', cell: (run) => run.baseline_model, card: 'none' },
  { id: 'found', header: 'Found', width: 'minmax(160px,1.6fr)', cell: (run) => found(run) || <span className="text-faint">–</span>, card: 'none' },
  {
    id: 'progress', header: 'Cases', width: '150px', right: true, named: true,
    cell: (run) => isRunning(run) ? <Progress label="Cases that are done" {...run.progress} /> : count(run.cases),
  },
  { id: 'trust', header: 'Judge', width: '110px', cell: (run) => <Status value={run.trust} />, card: 'none' },
  { id: 'cost', header: 'Cost', width: '90px', right: true, cell: (run) => <Money usd={run.cost_usd} /> },
  { id: 'made', header: 'Made', width: '90px', cell: (run) => <Time value={run.created_at} relative /> },
]

const schema = { new: flag }

export default function Evals() {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const [state, set] = useQueryState(schema)
  const { may, why } = useAllowed()
  useForward(['eval', 'job'], 'evals')
  const list = useQuery({
    queryKey: ['evals', ws],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/evals', { params: { query: { limit: 200 } }, signal })),
    refetchInterval: (query) => (query.state.data?.data.some(isRunning) ? 3000 : false),
  })
  const create = () => may && set({ new: true })
  useKeys('Evals', [{ keys: 'n', label: 'New eval', run: create }])
  useCommands([{ id: 'eval new', label: 'New eval', run: create }])
  const example = {
    name: 'large for support', rubric: 'The answer does what the user asked for.', judge_model: 'sim/judge', baseline_model: 'sim/chat',
    candidate_models: ['sim/chat-large'], sample_filters: { tag: 'support' }, sample_count: 300, max_cost_usd: 2,
  }
  return (
    <Page title="Evals" actions={<>
      <CurlButton call={{ path: '/v1/evals' }} small={false} />
      <Button look="primary" icon={<FlaskConicalIcon size={14} />} disabled={!may} title={why} onClick={create}>New eval</Button>
    </>}>
      {list.error && <Refusal error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <SkeletonLines />}
      {list.data?.data.length === 0 && (
        <EmptyState title="No evals yet" snippet={curl({ method: 'POST', path: '/v1/evals', body: example })}
          text="An eval asks several models the same questions, from your logs, a dataset or a file, and says what the answers prove. Its gate says yes or no to a pipeline."
          action={<Button look="primary" disabled={!may} title={why} onClick={create}>Compare two models</Button>} />
      )}
      {list.data && list.data.data.length > 0 && (
        <Section title="All evals" aside={String(list.data.data.length)} flush>
          <Table label="Evals" keys columns={columns} rows={list.data.data} rowKey={(run) => run.id}
            onOpen={(run) => void navigate({ to: `/w/${ws}/evals/${run.id}` as never })} />
        </Section>
      )}
      {state.new && <NewEval onClose={() => void navigate({ to: '.', search: {} as never, replace: true })} />}
    </Page>
  )
}
