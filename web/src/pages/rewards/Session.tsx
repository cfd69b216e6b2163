import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { DownloadIcon, OctagonPauseIcon } from 'lucide-react'
import { useState } from 'react'
import { data, download, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { count, percent } from '../../format'
import { useAllowed } from '../../ui/Allowed'
import { Badge, Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { Confirm } from '../../ui/Dialog'
import { TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Menu } from '../../ui/Menu'
import { Page, Section } from '../../ui/Page'
import { Refusal, sentence } from '../../ui/Refusal'
import { Facts, Money, SkeletonLines, Stat, Stats, Time } from '../../ui/Values'
import { WhenSeen } from '../../ui/WhenSeen'
import { burn, type Session as Shape } from './anchor'
import { useCriteria } from '../aliases/EditAlias'
import { AnchorSection } from './AnchorSection'
import { Trainers } from './Rewards'
import { Tokens } from './Tokens'

/** One reward session: what it has spent, what the anchor says, and how to end it. */
export default function Session() {
  const ws = useWorkspaceId()
  const { session: id } = useParams({ strict: false }) as { session: string }
  const session = useQuery({
    queryKey: ['reward-session', ws, id],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/reward/sessions/{id}', { params: { path: { id } }, signal })),
    refetchInterval: (query) => (query.state.data?.status === 'ACTIVE' ? 5000 : false),
  })
  const above = <A to="rewards">Rewards</A>
  if (session.error) return <Page title="Reward session" above={above}><Refusal error={session.error} retry={() => void session.refetch()} /></Page>
  if (!session.data) return <Page title="Reward session" above={above}><SkeletonLines lines={8} /></Page>
  return <Loaded of={session.data} />
}

function Loaded({ of }: { of: Shape }) {
  const ws = useWorkspaceId()
  const { may, why } = useAllowed()
  const name = of.label || of.id
  const active = of.status === 'ACTIVE'
  const { share, low } = burn(of)
  const [asking, setAsking] = useState<'stop' | 'complete' | 'release'>()
  const exportAs = (format: string) => () => location.assign(download(ws, `/reward/sessions/${of.id}/export`, { format }))
  return (
    <Page title={name} above={<A to="rewards">Rewards</A>} aside={<><Status value={of.status} />{of.anchor.held && <Badge tone="fail">held</Badge>}</>} actions={<>
      <CurlButton call={{ path: `/v1/reward/sessions/${of.id}` }} small={false} />
      <Menu align="end" trigger={<Button icon={<DownloadIcon size={14} />}>Export</Button>} groups={[{ heading: 'One JSON object on a line', items: [
        { label: 'Rewards (rl)', run: exportAs('rl') }, { label: 'Passed completions (sft)', run: exportAs('sft') }, { label: 'Pairs (pairwise)', run: exportAs('pairwise') },
      ] }]} />
      {active && <Button disabled={!may} title={why} onClick={() => setAsking('complete')}>Complete</Button>}
      {active && <Button look="danger" disabled={!may} title={why} onClick={() => setAsking('stop')}>Stop</Button>}
    </>}>
      {of.anchor.held && (
        <section role="alert" className="mb-3 flex flex-wrap items-start gap-3 rounded-md border border-fail/50 bg-fail-ground px-3 py-2.5 text-sm">
          <OctagonPauseIcon size={18} className="mt-0.5 shrink-0 text-fail" aria-hidden />
          <div className="min-w-0 flex-1">
            <p className="font-medium">The anchor holds this session since <Time value={of.anchor.held_at} />. Scoring answers 412.</p>
            <p className="text-soft">{sentence(of.anchor.held_reason ?? '')}</p>
            <p className="text-soft">Go on from the checkpoint of step {of.anchor.pinned_step ?? '–'}, the last that passed a check, after mending the judge or the run.</p>
          </div>
          {active && <Button look="primary" disabled={!may} title={why} onClick={() => setAsking('release')}>Release</Button>}
        </section>
      )}
      <Stats>
        <Stat label="Spent of the budget" value={<Money usd={of.spent_usd} />} hint={<>of <Money usd={of.budget_usd} /> · {percent(share)}{low ? ' · almost over' : ''}</>}
          to="wallet" query={{ by: 'model', key: of.id }} />
        <Stat label="Scored" value={count(of.scored)} hint={of.scored ? <>about <Money usd={of.spent_usd / of.scored} /> each</> : 'items'} />
        <Stat label="Pinned step" value={of.anchor.pinned_step ?? '–'} hint="the last that passed a check" />
        <Stat label="Checks" value={count(of.anchor.checks)} hint={of.anchor.criterion_name ?? 'without an anchor'} />
        <Stat label={active ? 'Stops by itself' : 'Ended'} value={<Time value={active ? of.expires_at : of.stopped_at} relative />} hint={of.reason ?? undefined} />
      </Stats>
      <div className="mt-3 h-2 overflow-hidden rounded-full bg-raised" role="progressbar" aria-label="Budget that is spent" aria-valuemin={0} aria-valuemax={100}
        aria-valuenow={Math.round(share * 100)}><div className={`h-full ${low ? 'bg-warn' : 'bg-accent'}`} style={{ width: `${Math.min(100, share * 100)}%` }} /></div>
      <div className="mt-4">
        {of.anchor.criterion_id ? <AnchorSection of={of} /> : (
          <Section title="Anchor"><p className="text-sm text-soft">This session has none: nothing notices when the run learns to please the judge instead of people.
            The next session can have another judge, by another model, as its anchor.</p></Section>
        )}
      </div>
      <WhenSeen height={200}><Judges of={of} /></WhenSeen>
      <WhenSeen height={90}><Tokens session={of.id} active={active} /></WhenSeen>
      <Section title="In your trainer"><Trainers session={of.id} /></Section>
      <Actions of={of} name={name} asking={asking} close={() => setAsking(undefined)} />
    </Page>
  )
}

function Judges({ of }: { of: Shape }) {
  const names = new Map(useCriteria().data?.data.map((one) => [one.id, one.name]))
  return (
    <Section title="Judges" aside={of.reward.mode === 'single' ? 'one judge' : of.reward.mode === 'all' ? 'all must pass' : 'a weighted mean'}>
      <ul className="space-y-3">
        {of.certificates.map((one) => (
          <li key={one.id}>
            <p className="flex flex-wrap items-center gap-2 text-sm"><A to={`judges/${one.criterion_id}`} className="link font-medium">{names.get(one.criterion_id) ?? one.criterion_id}</A>
              <Status value={one.voided ? 'voided' : one.trust} /><span className="text-soft">{one.judge_model}, version {one.criterion_version}</span></p>
            {one.voided && <p className="text-sm text-fail">Voided <Time value={one.voided_at} relative />: {one.voided_reason}</p>}
          </li>
        ))}
      </ul>
      <div className="mt-3">
        <Facts rows={[['Id', <Id value={of.id} />], ['Made', <Time value={of.created_at} />], ['Tasks stored', count(of.task_count)],
          ['Completions', of.agentic ? 'trajectories' : 'texts'], ...(of.purged_at ? [['Items deleted', <Time value={of.purged_at} />] as [string, React.ReactNode]] : [])]} />
      </div>
    </Section>
  )
}

interface ActionProps { of: Shape; name: string; asking?: 'stop' | 'complete' | 'release'; close: () => void }

function Actions({ of, name, asking, close }: ActionProps) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const [note, setNote] = useState('')
  const params = { params: { path: { id: of.id } } }
  const done = async (said: string) => {
    await Promise.all(['reward-session', 'reward-sessions', 'reward-anchor', 'wallet'].map((key) => client.invalidateQueries({ queryKey: [key, ws] })))
    tell(said)
  }
  const left = of.budget_usd - of.spent_usd
  return (
    <>
      <Confirm open={asking === 'stop'} onClose={close} danger action="Stop it" typedName={name} title="Stop this session?"
        text={<>Scoring is refused at once, and the trainer gets an error. <Money usd={left} /> of the budget comes back. A session that has ended does not begin again.</>}
        run={async () => {
          await data(v1(ws).DELETE('/v1/reward/sessions/{id}', params))
          await done('The session is stopped')
        }} />
      <Confirm open={asking === 'complete'} onClose={close} action="Complete it" title="Is the run done?"
        text={<>No more is scored, and <Money usd={left} /> of the budget comes back.</>}
        run={async () => {
          await data(v1(ws).POST('/v1/reward/sessions/{id}/complete', params))
          await done('The session is completed')
        }} />
      <Confirm open={asking === 'release'} onClose={close} action="Release" title="Let it score again?"
        text="The newest certificates are pinned, and a new e-process begins with a 5 % of its own. Release a run that was mended, not one that was unlucky: who releases again and again will not see it held."
        run={async () => {
          if (!note.trim()) throw new Error('Say why: the note is kept in the audit trail')
          await data(v1(ws).POST('/v1/reward/sessions/{id}/anchor/release', { ...params, body: { note: note.trim() } }))
          setNote('')
          await done('The session scores again')
        }}>
        <TextField label="Why" value={note} onChange={(event) => setNote(event.target.value)} hint="Kept in the audit trail" />
        <CurlButton call={{ method: 'POST', path: `/v1/reward/sessions/${of.id}/anchor/release`, body: { note } }} />
      </Confirm>
    </>
  )
}
