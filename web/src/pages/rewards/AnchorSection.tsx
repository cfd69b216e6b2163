import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import type { components } from '../../api/v1'
import { useToast } from '../../app/Toasts'
import { LineChart } from '../../chart/LineChart'
import { count, percent } from '../../format'
import { useAllowed } from '../../ui/Allowed'
import { Badge } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Confirm } from '../../ui/Dialog'
import { TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Facts, Progress, SkeletonLines, Time } from '../../ui/Values'
import { lastWords, logEvidence, processes, type Check, type Session } from './anchor'

type Anchor = components['schemas']['RewardAnchor']

/** What the anchor has found: rates of the reward and of the anchor, and the evidence against a healthy run. */
export function AnchorSection({ of }: { of: Session }) {
  const ws = useWorkspaceId()
  const { may, why } = useAllowed()
  const [asking, setAsking] = useState(false)
  const anchor = useQuery({
    queryKey: ['reward-anchor', ws, of.id], refetchInterval: of.status === 'ACTIVE' ? 5000 : false,
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/reward/sessions/{id}/anchor', { params: { path: { id: of.id } }, signal })),
  })
  if (anchor.error) return <Refusal error={anchor.error} retry={() => void anchor.refetch()} />
  if (!anchor.data) return <div className="min-h-dvh"><SkeletonLines lines={6} /></div>
  const a = anchor.data
  const last = a.history[a.history.length - 1]
  return (
    <>
      <Section title="Anchor" aside={a.held ? <Badge tone="fail">holds</Badge> : a.history.length ? <Badge tone="pass">agrees so far</Badge> : undefined} actions={<>
        {of.status === 'ACTIVE' && !a.held && <Button small disabled={!may} title={why} onClick={() => setAsking(true)}>Check a step now</Button>}
        <CurlButton call={{ path: `/v1/reward/sessions/${of.id}/anchor` }} />
      </>}>
        <p className="text-base">{lastWords(last, a.holds_from)}</p>
        <p className="mt-1 text-sm text-soft">A healthy run is ever held with a probability of at most 5 %, however long it runs and however often it is checked.</p>
        {a.note && <p className="mt-1 text-sm text-warn">{a.note}</p>}
      </Section>
      {a.history.length > 0 && <Pictures a={a} />}
      <Section title="Checks" flush>
        <div className="grid gap-4 border-b border-line px-3.5 py-3 md:grid-cols-2">
          <Facts rows={[
            ['Judge', <A to={`judges/${a.criterion_id}`}>{a.criterion_name}</A>],
            ['Explained difference', a.gap === null ? '–' : `${percent(a.gap)}: what the calibrations account for`],
            ['Items in common', `${count(a.common_pass)} pass, ${count(a.common_fail)} fail`],
            ['E-process', `${a.process}, with evidence ${a.evidence === null ? '–' : a.evidence.toPrecision(3)} of ${a.holds_from}`],
          ]} />
          <div className="text-sm"><p className="mb-1 text-soft">{a.checking ? `Step ${a.checking} is being checked` : 'Scored since the last check'}</p>
            <Progress label="Items until the next check" done={Math.min(a.every, a.scored_since_check)} total={a.every} />
            {a.dropped_checks > 0 && <p className="mt-1 text-xs text-faint">{count(a.dropped_checks)} checks were drawn and have no result</p>}</div>
        </div>
        {a.history.length === 0 ? <p className="px-3.5 py-3 text-sm text-soft">The first check is made after {count(a.every)} scored items.</p>
          : <Table label="Checks" columns={columns} rows={[...a.history].reverse()} rowKey={(check) => check.at + check.step} />}
      </Section>
      {asking && <CheckNow id={of.id} onClose={() => setAsking(false)} />}
    </>
  )
}

const columns: Column<Check>[] = [
  { id: 'step', header: 'Step', width: 'minmax(80px,.6fr)', cell: (one) => one.step, card: 'title' },
  { id: 'at', header: 'When', width: 'minmax(100px,.6fr)', cell: (one) => <Time value={one.at} relative /> },
  { id: 'n', header: 'Sampled', width: '84px', right: true, cell: (one) => count(one.n), card: 'none' },
  { id: 'reward', header: 'Reward passes', width: '130px', right: true, cell: (one) => percent(one.reward_rate) },
  {
    id: 'anchor', header: 'Anchor passes', width: '190px', right: true,
    cell: (one) => `${percent(one.anchor_rate)} (${percent(one.anchor_ci[0]!, 0)} to ${percent(one.anchor_ci[1]!, 0)})`,
  },
  { id: 'masked', header: 'Masked', width: '80px', right: true, cell: (one) => count(one.masked), card: 'none' },
  { id: 'evidence', header: 'Evidence', width: '100px', right: true, cell: (one) => one.evidence.toPrecision(3), card: 'title' },
  {
    id: 'how', header: 'Note', width: '100px', card: 'none',
    cell: (one) => one.held ? <Badge tone="fail">held it</Badge> : one.requested ? <Badge>asked for</Badge> : null,
  },
]

function Pictures({ a }: { a: Anchor }) {
  const rows = a.history
  return (
    <div className="grid gap-x-4 lg:grid-cols-2">
      <Section title="Anchor drift">
        <LineChart title="Share that passes, per check" xLabel="Check" yFormat={(y) => percent(y, 0)} yDomain={[0, 1]} series={[
          { name: 'reward', points: rows.map((one, i) => ({ x: i + 1, y: one.reward_rate })) },
          { name: 'anchor', points: rows.map((one, i) => ({ x: i + 1, y: one.anchor_rate, low: one.anchor_ci[0]!, high: one.anchor_ci[1]! })) },
        ]} summary={lastWords(rows[rows.length - 1], a.holds_from)} />
        <p className="mt-1 text-xs text-faint">A gap that grows beyond {a.gap === null ? 'the explained one' : percent(a.gap)} is what the evidence counts.</p>
      </Section>
      <Section title="Evidence against a healthy run">
        <LineChart title="Logarithm of the evidence, per check" xLabel="Check" yFormat={(y) => y.toFixed(1)}
          thresholds={[{ y: Math.log(a.holds_from), label: `holds at ln ${a.holds_from} = ${Math.log(a.holds_from).toFixed(1)}` }]} summary={lastWords(rows[rows.length - 1], a.holds_from)}
          series={processes(rows).map(({ process, checks }) => ({ name: `process ${process}`, points: checks.map(({ at, check }) => ({ x: at, y: logEvidence(check.evidence) })) }))} />
        <p className="mt-1 text-xs text-faint">It may be looked at after every check; a release begins another process.</p>
      </Section>
    </div>
  )
}

function CheckNow({ id, onClose }: { id: string; onClose: () => void }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const [step, setStep] = useState('')
  const check = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/reward/sessions/{id}/anchor/checks', { params: { path: { id } }, body: { step: step.trim() } })),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ['reward-anchor', ws, id] })
      tell('The anchor checks it')
    },
  })
  return (
    <Confirm open onClose={onClose} action="Check it" title="Check a step now" text="A sample of what was scored under the step, and was not drawn before, goes to the anchor. The session’s budget pays its answers."
      run={() => check.mutateAsync()}><TextField label="Step" value={step} onChange={(event) => setStep(event.target.value)} /></Confirm>
  )
}
