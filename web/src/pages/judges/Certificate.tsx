import { useQuery } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { ShieldAlertIcon } from 'lucide-react'
import { useEffect, useState } from 'react'
import { curl } from '../../api/curl'
import { useWorkspace } from '../../api/session'
import { IntervalPlot } from '../../chart/IntervalPlot'
import { LineChart } from '../../chart/LineChart'
import { Matrix } from '../../chart/Matrix'
import { text, useQueryState } from '../../query'
import { count, plural } from '../../format'
import { Badge, Status } from '../../ui/Badge'
import { buttonClass } from '../../ui/Button'
import { CopyButton, CurlButton, Id } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Facts, SkeletonLines, Time } from '../../ui/Values'
import { calibrationsQuery, certificateQuery, judgeQuery, type Certificate, type Judge } from './api'
import { historyOf, intervalsOf } from './blocks'
import { Ladder } from './Ladder'
import { mark, needSentence } from './ladder'
import { SignedProof } from './SignedProof'
import { sha256 } from './verify'

const schema = { id: text() }

/** A certificate: what was measured, how sure that is, what would void it, and its proof. */
export default function CertificatePage() {
  const workspace = useWorkspace()
  const { judge: judgeId = '' } = useParams({ strict: false }) as { judge?: string }
  const [{ id }] = useQueryState(schema)
  const judge = useQuery(judgeQuery(workspace.id, judgeId))
  const certificate = useQuery(certificateQuery(workspace.id, judgeId, id))
  const calibrations = useQuery(calibrationsQuery(workspace.id, judgeId))
  const above = <><A to="judges">Judges</A> / <A to={`judges/${judgeId}`}>{judge.data?.name ?? judgeId}</A></>
  const error = certificate.error ?? (certificate.data ? null : judge.error)
  if (error) return <Page title="Certificate" above={above}><Refusal error={error} retry={() => void certificate.refetch()} /></Page>
  if (certificate.isPending || judge.isPending) return <Page title="Certificate" above={above}><SkeletonLines lines={10} /></Page>
  const c = certificate.data
  if (!c) return <Page title="Certificate" above={above}><None judge={judge.data!} /></Page>
  return (
    <Page title={`Certificate of ${judge.data?.name ?? judgeId}`} above={above} aside={<>
      <Status value={c.voided ? 'voided' : c.trust} /> <span className="hidden sm:inline">issued <Time value={c.issued_at} /></span>
    </>} actions={<CurlButton small={false} call={{ path: `/v1/certificates/${c.id}` }} />}>
      {c.voided && <Voided c={c} judge={judge.data} />}
      {!c.voided && judge.data && judge.data.certificate_id !== c.id && (
        <p className="mb-4 rounded-md bg-info-ground px-3 py-2 text-sm text-info">A newer certificate exists. <A to={`judges/${judgeId}/certificate`} className="underline">Read it</A></p>
      )}
      <div className="grid items-start gap-x-4 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <div className="min-w-0">
          <Measured c={c} />
          <Section title="Calibrations over time" aside={calibrations.data && plural(calibrations.data.data.length, 'run')}
            actions={<A to={`judges/${judgeId}`} query={{ tab: 'calibrations' }} className="link text-xs">All runs</A>}>
            {calibrations.data ? <LineChart title="Sensitivity and specificity, with 95 % bands" yFormat={(y) => y.toFixed(2)} yDomain={[lowest(calibrations.data.data), 1]}
              {...historyOf(calibrations.data.data)} thresholds={[{ y: mark, label: '0.90' }]}
              summary={`${calibrations.data.data.length} calibrations of this judge, each with the interval of its sensitivity and specificity.`} /> : <SkeletonLines />}
          </Section>
        </div>
        <div className="min-w-0">
          <Proof c={c} ws={workspace.id} judgeId={judgeId} rubric={judge.data?.version === c.criterion_version ? judge.data.rubric : undefined} />
          <Section title="Trust"><Ladder tier={c.voided ? 'none' : c.trust} block={c} voided={c.voided} />
            {c.voided && <p className="mt-2 text-xs text-soft">It was {c.trust} until it was voided.</p>}</Section>
          <Section title="What voids it">
            <ul className="list-disc space-y-1 pl-4 text-sm text-soft">{c.voids.map((cause) => <li key={cause}>{cause}</li>)}</ul>
          </Section>
        </div>
      </div>
    </Page>
  )
}

const lowest = (runs: { block: { se_ci: number[] | null; sp_ci: number[] | null } | null }[]): number =>
  Math.max(0, Math.min(0.8, ...runs.flatMap((run) => [run.block?.se_ci?.[0] ?? 1, run.block?.sp_ci?.[0] ?? 1])) - 0.02)

function Voided({ c, judge }: { c: Certificate; judge?: Judge }) {
  return (
    <div role="alert" className="mb-4 flex flex-wrap items-center gap-x-3 gap-y-2 rounded-md border border-fail/40 bg-fail-ground px-3.5 py-2.5 text-sm">
      <ShieldAlertIcon size={18} className="shrink-0 text-fail" aria-hidden />
      <p className="min-w-0 flex-1 basis-64"><strong>Void</strong> since <Time value={c.voided_at} />: {c.voided_reason}. Nothing that needs a certificate relies on it any more.</p>
      {judge && judge.certificate_id === c.id || judge && !judge.certificate_id
        ? <A to={`judges/${c.criterion_id}`} query={{ calibrate: 'true' }} className={buttonClass()}>Calibrate again</A>
        : <A to={`judges/${c.criterion_id}/certificate`} className={buttonClass()}>The newest certificate</A>}
    </div>
  )
}

function Measured({ c }: { c: Certificate }) {
  const rows = (query: Record<string, string>) => ({ to: `judges/${c.criterion_id}`, query: { tab: 'calibrations', run: c.calibration_id, ...query } })
  return (
    <Section title="What was measured" aside={`${count(c.n)} verdicts, ${c.holdout_active ? 'on the report half alone' : 'on all labels: the report half is too small'}`}>
      {c.n === 0 ? <p className="text-sm text-soft">The judge gave no verdict. <A {...rows({ cell: 'failed' })}>{plural(c.failed, 'failure')}</A></p> : <>
        <IntervalPlot title="Against 0.90, 95 % intervals" threshold={{ at: mark, label: '0.90' }} intervals={intervalsOf(c)} />
        <div className="mt-4 flex flex-wrap gap-x-10 gap-y-4">
          <MatrixOf c={c} />
          <div className="min-w-64 flex-1"><Facts rows={[
            ['Sensitivity', 'of what people pass, how much the judge passes'],
            ['Specificity', 'of what people fail, how much the judge fails'],
            ['No verdicts', <A key="f" {...rows({ cell: 'failed' })}>{count(c.failed)}</A>],
            ...(c.ties !== undefined ? [['Ties left out', count(c.ties)] as [string, string]] : []),
            ['Labels ruled on', <A key="a" to={`judges/${c.criterion_id}/adjudication`}>{count(c.adjudicated)} corrected or confirmed, {count(c.withdrawn)} withdrawn</A>],
            ['Calibrations', <span key="c">{count(c.calibrations)}{c.calibrations > 5 && <span className="text-faint"> · repeated tries on the same labels can succeed by luck</span>}</span>],
          ]} /></div>
        </div>
      </>}
    </Section>
  )
}

function MatrixOf({ c }: { c: Certificate }) {
  const { tp, fp, tn, fn } = c.matrix
  const cells = [['tp', 'fn'], ['fp', 'tn']] as const
  const navigate = useNavigate()
  const { workspace } = useParams({ strict: false }) as { workspace?: string }
  return (
    <Matrix title="Judge against people" rowTitle="People" columnTitle="Judge" rows={['pass', 'fail']} columns={['pass', 'fail']} cells={[[tp, fn], [fp, tn]]}
      onOpen={(row, column) => void navigate({
        to: `/w/${workspace}/judges/${c.criterion_id}` as never, search: { tab: 'calibrations', run: c.calibration_id, cell: cells[row]![column]! } as never,
      })} />
  )
}

/** The proof: verification in this browser, and what others need to verify it elsewhere. */
function Proof({ c, ws, judgeId, rubric }: { c: Certificate; ws: string; judgeId: string; rubric?: string }) {
  return (
    <SignedProof of={c} noun="Certificate" path={`/v1/certificates/${c.id}`} link={`${location.origin}/dashboard/w/${ws}/judges/${judgeId}/certificate?id=${c.id}`}>
      <Facts rows={[
        ['Certificate', <Id key="i" value={c.id} />],
        ['Issued', <Time key="t" value={c.issued_at} />],
        ['Judge', <span key="j">{c.judge_model}, version {c.criterion_version}, prompt edition {c.judge_edition}</span>],
        ['Rubric', <RubricDigest key="r" digest={c.rubric_sha256} rubric={rubric} />],
        ['Key', <Id key="k" value={c.signature.key_id} />],
      ]} />
    </SignedProof>
  )
}

/** The digest of the measured rubric, and whether today's rubric is that one. */
function RubricDigest({ digest, rubric }: { digest: string; rubric?: string }) {
  const [now, setNow] = useState<string | null>(null)
  useEffect(() => {
    if (rubric !== undefined) void sha256(rubric).then(setNow)
  }, [rubric])
  return <span className="flex flex-wrap items-center gap-x-2"><code className="font-mono text-xs">{digest.slice(0, 16)}…</code>
    <CopyButton text={digest} label="" what="the rubric’s SHA-256" />
    {now === digest && <Badge tone="pass">is today’s rubric</Badge>}</span>
}

function None({ judge }: { judge: Judge }) {
  const need = needSentence(judge.labels)
  return (
    <EmptyState title={need ? need[0]!.toUpperCase() + need.slice(1) : 'Not calibrated yet'}
      text={<>A certificate says how often this judge is right, with intervals, and is signed. It comes from a calibration: the judge grades what people graded.
        {need ? ' For the tier “measured” the half that measures needs 30 of each class, so grade about twice as many.' : ' There are enough labels to try.'}</>}
      snippet={curl({ method: 'POST', path: `/v1/criteria/${judge.id}/calibrations`, body: {} })}
      action={<>
        <A to="review" query={{ new: 'true', criterion: judge.id }} className={buttonClass(need ? 'primary' : 'plain')}>Make a review queue</A>
        <A to={`judges/${judge.id}`} query={{ calibrate: 'true' }} className={buttonClass(need ? 'plain' : 'primary')}>Calibrate…</A>
      </>} />
  )
}
