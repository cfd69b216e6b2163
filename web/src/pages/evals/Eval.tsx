import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { DownloadIcon, RotateCwIcon } from 'lucide-react'
import { useState } from 'react'
import { data, download, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { count, duration, percent } from '../../format'
import { useAllowed } from '../../ui/Allowed'
import { Badge, Status, toneOf } from '../../ui/Badge'
import { Button, buttonClass } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { Confirm } from '../../ui/Dialog'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Facts, Money, Progress, SkeletonLines, Stat, Stats, Time } from '../../ui/Values'
import { TextView } from '../../ui/Viewer'
import { Cases } from './Cases'
import { isRunning } from './Evals'
import type { Eval as Shape } from './gate'
import { GatePanel } from './GatePanel'
import { Results } from './Results'

/** One eval: what it has found, its gate, its cases. */
export default function Eval() {
  const ws = useWorkspaceId()
  const { eval: id } = useParams({ strict: false }) as { eval: string }
  const run = useQuery({
    queryKey: ['eval', ws, id],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/evals/{id}', { params: { path: { id } }, signal })),
    refetchInterval: (query) => (query.state.data && isRunning(query.state.data) ? 2000 : false),
  })
  const above = <A to="evals">Evals</A>
  if (run.error) return <Page title="Eval" above={above}><Refusal error={run.error} retry={() => void run.refetch()} /></Page>
  if (!run.data) return <Page title="Eval" above={above}><SkeletonLines lines={8} /></Page>
  return <Loaded run={run.data} />
}

function Loaded({ run }: { run: Shape }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const [cancelling, setCancelling] = useState(false)
  const cancel = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/evals/{id}/cancel', { params: { path: { id: run.id } } })),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ['eval', ws, run.id] })
      tell('The eval is cancelled', { text: 'What was answered is kept.' })
    },
  })
  return (
    <Page title={run.name} above={<A to="evals">Evals</A>} aside={<><Status value={run.status} /><Badge tone={toneOf(run.trust)}>{run.trust === 'none' ? 'judge not measured' : `judge ${run.trust}`}</Badge></>} actions={<>
      <CurlButton call={{ path: `/v1/evals/${run.id}` }} small={false} />
      <a className={buttonClass()} href={download(ws, `/evals/${run.id}/cases/export`)} download><DownloadIcon size={14} aria-hidden /> Export</a>
      <A to="evals" query={again(run)} className={buttonClass()}><RotateCwIcon size={14} aria-hidden /> Again</A>
      {isRunning(run) && <Button look="danger" disabled={!may} title={why} onClick={() => setCancelling(true)}>Cancel</Button>}
    </>}>
      {run.error && <div className="mb-3"><Refusal error={new Error(run.error)} title="The run failed" /></div>}
      {isRunning(run) && <div className="card mb-3 px-3.5 py-2.5"><Progress label="Cases that are done" {...run.progress} /></div>}
      <Stats>
        <Stat label="Cases" value={count(run.cases)} hint={run.left_out ? `${count(run.left_out)} left out` : run.source} />
        <Stat label="Cost" value={<Money usd={run.cost_usd} />} hint={<>estimated <Money usd={run.estimated_cost_usd} />{run.max_cost_usd !== null && <>, at most <Money usd={run.max_cost_usd} /></>}</>} />
        {run.kind === 'comparison' && (
          <Stat label="Flip rate" value={run.flip_rate === null ? '–' : percent(run.flip_rate)} to={`evals/${run.id}`} query={{ flipped: 'true' }}
            hint="the judge changed its mind with the order" />
        )}
        <Stat label="Failures" value={count(failures(run))} to={`evals/${run.id}`} query={{ outcome: 'failed' }} hint={`${count(run.failed.judge)} without a judgement`} />
        <Stat label="Took" value={run.started_at ? duration((run.finished_at ? new Date(run.finished_at) : new Date()).getTime() - new Date(run.started_at).getTime()) : '–'}
          hint={<Time value={run.created_at} />} />
      </Stats>
      <div className="mt-4"><Results run={run} /></div>
      <GatePanel run={run} />
      <Cases run={run} />
      <About run={run} />
      <Confirm open={cancelling} onClose={() => setCancelling(false)} danger action="Cancel the eval" title="Cancel this eval?"
        text="It stops asking models. What was answered is kept and can be looked at; its gate refuses." run={() => cancel.mutateAsync()} />
    </Page>
  )
}

const failures = (run: Shape): number =>
  run.failed.judge + Object.values(run.failed.models as Record<string, number>).reduce((sum, n) => sum + n, 0)

/** The same run again, as a form. */
function again(run: Shape): Record<string, string> {
  const filters = (run.sample_filters ?? {}) as Record<string, string>
  const query: Record<string, string> = {
    new: 'true', name: run.name, baseline: run.baseline_model, candidates: run.candidate_models.join(','), source: run.source,
    ...filters,
  }
  if (run.criterion_id) query.criterion = run.criterion_id
  else Object.assign(query, { kind: 'rubric', rubric: run.rubric ?? '', judge: run.judge_model })
  if (run.dataset_id) query.dataset = run.dataset_id
  if (run.sample_count) query.count = String(run.sample_count)
  if (run.max_cost_usd) query.max_cost = String(run.max_cost_usd)
  return query
}

function About({ run }: { run: Shape }) {
  const filters = Object.entries((run.sample_filters ?? {}) as Record<string, string>)
  return (
    <Section title="How it was run">
      <Facts rows={[
        ['Id', <Id value={run.id} />],
        ['Baseline', <A to="logs" query={{ model: run.baseline_model }}>{run.baseline_model}</A>],
        ['Judge', run.criterion_id ? <A to={`judges/${run.criterion_id}`}>{run.judge_model}, version {run.criterion_version}</A> : run.judge_model],
        ['Cases from', run.dataset_id ? <A to={`datasets/${run.dataset_id}`}>a dataset</A>
          : run.source === 'logs' ? <A to="logs" query={Object.fromEntries(filters)}>logs{filters.length ? `: ${filters.map(([k, v]) => `${k} ${v}`).join(', ')}` : ''}</A> : 'the request'],
        ['Seed', String(run.seed)], ['Parameters', run.parameters && Object.keys(run.parameters).length > 0 ? <code className="font-mono text-xs">{JSON.stringify(run.parameters)}</code> : 'none'],
        ['Began', <Time value={run.started_at} />], ['Ended', <Time value={run.finished_at} />],
      ]} />
      {run.rubric && <div className="mt-3"><TextView label="Rubric" text={run.rubric} markdown={false} /></div>}
    </Section>
  )
}
