import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { CheckIcon } from 'lucide-react'
import { useState } from 'react'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { IntervalPlot } from '../../chart/IntervalPlot'
import { count } from '../../format'
import { useAllowed } from '../../ui/Allowed'
import { Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { Confirm } from '../../ui/Dialog'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Facts, Money, SkeletonLines, Stat, Stats, Time } from '../../ui/Values'
import { isOver, reasonName, roundQuery, stages, verdict, type Round as Shape } from './raft'

/** One RAFT round: how far it is, what it kept, and what the reward did. */
export default function Round() {
  const ws = useWorkspaceId()
  const { round: id } = useParams({ strict: false }) as { round: string }
  const round = useQuery(roundQuery(ws, id))
  const above = <><A to="training">Training</A> / <A to="training" query={{ tab: 'rounds' }}>RAFT</A></>
  if (round.error) return <Page title="RAFT round" above={above}><Refusal error={round.error} retry={() => void round.refetch()} /></Page>
  if (!round.data) return <Page title="RAFT round" above={above}><SkeletonLines lines={8} /></Page>
  const r = round.data
  return (
    <Page title={`RAFT round ${r.round} of ${r.base_model}`} above={above} aside={<Status value={r.status} />} actions={<><CurlButton call={{ path: `/v1/raft/rounds/${r.id}` }} small={false} /><Cancel of={r} /></>}>
      {r.error && <div className="mb-3"><Refusal title="It failed" error={new Error(r.error.message)} /></div>}
      <Stages of={r} />
      <Stats>
        <Stat label="Kept" value={count(r.accepted)} hint={`the best of each prompt, graded ${r.min_grade} or better`} />
        <Stat label="Prompts" value={count(r.prompt_count)} hint={`${count(r.held_out_count)} of them held out, ${r.samples_per_prompt} answers to each`} />
        <Stat label="Cost" value={<Money usd={r.spent_usd} />} hint={<>of <Money usd={r.budget_usd} />, held first</>} to="wallet" />
        <Stat label={isOver(r) ? 'Ended' : 'Begun'} value={<Time value={r.finished_at ?? r.created_at} relative />} />
      </Stats>
      <div className="mt-4 grid items-start gap-x-4 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <Section title="Reward on held-out prompts">
          {r.reward_before || r.reward_after ? (
            <IntervalPlot title="Mean grade, 95 % intervals" format={(x) => x.toFixed(2)} intervals={[
              ...(r.reward_before ? [{ label: 'before', value: r.reward_before.mean, low: r.reward_before.lower, high: r.reward_before.upper, note: `${r.reward_before.n} prompts` }] : []),
              ...(r.reward_after ? [{ label: 'after', value: r.reward_after.mean, low: r.reward_after.lower, high: r.reward_after.upper, note: `${r.reward_after.n} prompts` }] : []),
            ]} />
          ) : <p className="text-sm text-soft">Not measured yet.</p>}
          <p className="mt-3 text-sm">{verdict(r)}</p>
        </Section>
        <div className="min-w-0">
          <Section title="Made">
            <Facts rows={[
              ['From', r.parent_id ? <A to={`training/models/${r.parent_id}`}>a version of {r.base_model}</A> : r.base_model],
              ['Prompts', <A to={`datasets/${r.dataset_id}`}>of a dataset</A>],
              ['Judge', <A to={`judges/${r.criterion_id}`}>its certificate</A>],
              ['Scoring', <A to={`rewards/${r.reward_session_id}`}>its reward session</A>],
              ['Fine-tuning', trained(r) ? <A to={`training/runs/${r.fine_tuning_job_id}`}>its curves</A> : 'after scoring'],
              ['Model', r.model_version_id ? <A to={`training/models/${r.model_version_id}`}>files and lineage</A> : '–'],
              ...(r.next_round_id ? [['Next round', <A to={`training/rounds/${r.next_round_id}`}>round {r.round + 1}</A>] as [string, React.ReactNode]] : []),
              ['Id', <Id value={r.id} />],
            ]} />
          </Section>
          <Section title="Left out">
            {Object.keys(r.rejected_by_reason ?? {}).length === 0 ? <p className="text-sm text-soft">Nothing so far.</p>
              : <Facts rows={Object.entries(r.rejected_by_reason!).map(([reason, n]) => [reasonName(reason), count(n)])} />}
          </Section>
        </div>
      </div>
    </Page>
  )
}

const trained = (r: Shape) => r.fine_tuning_job_id !== '' && stages.indexOf(r.stage as typeof stages[number]) >= stages.indexOf('training')

function Cancel({ of }: { of: Shape }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const [asking, setAsking] = useState(false)
  if (isOver(of)) return null
  return (
    <>
      <Button look="danger" disabled={!may} title={why} onClick={() => setAsking(true)}>Cancel</Button>
      <Confirm open={asking} onClose={() => setAsking(false)} danger action="Cancel it" title="Cancel this round?"
        text={<>It ends, and no round follows. What it made stays, what was done is charged, and the rest of <Money usd={of.budget_usd} /> comes back.</>}
        run={async () => {
          await call(ws, 'POST', `/raft/rounds/${of.id}/cancel`)
          await Promise.all(['raft-round', 'raft-rounds', 'wallet'].map((key) => client.invalidateQueries({ queryKey: [key, ws] })))
          tell('The round is cancelled')
        }} />
    </>
  )
}

function Stages({ of }: { of: Shape }) {
  const at = of.status === 'SUCCEEDED' ? stages.length : stages.indexOf(of.stage as typeof stages[number])
  return (
    <ol aria-label="Stages" className="mb-4 flex flex-wrap gap-2 text-sm">
      {stages.map((stage, i) => (
        <li key={stage} aria-current={i === at ? 'step' : undefined} className={`inline-flex items-center gap-1.5 rounded-md border px-2.5 py-1 ${i === at ? 'border-accent bg-accent-ground font-medium text-accent' : 'border-line text-soft'}`}>
          {i < at && <CheckIcon size={14} aria-label="done" className="text-pass" />}{i + 1}. {stage}
        </li>
      ))}
    </ol>
  )
}
