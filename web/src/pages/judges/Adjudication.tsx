import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspace } from '../../api/session'
import { announce } from '../../app/announce'
import { IntervalPlot } from '../../chart/IntervalPlot'
import { useKeys } from '../../keys'
import { count, percent, plural } from '../../format'
import { Badge, Status } from '../../ui/Badge'
import { Button, buttonClass } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Person } from '../../ui/Person'
import { Refusal } from '../../ui/Refusal'
import { Facts, SkeletonLines } from '../../ui/Values'
import { Exchange } from '../logs/Exchange'
import { repeated } from '../review/grading'
import { judgeQuery, reportQuery, type Judge, type Label, type Report } from './api'
import { intervalsOf } from './blocks'
import { mark } from './ladder'
import { casesOf, directionName, sureness, type Case } from './ruling'

type Ruling = { kind: 'label_error' | 'judge_error' | 'ambiguous' } | { verdict: 'pass' | 'fail' }

/** Rules on what judge and people disagree on, then on a blind sample of what they agree on. */
export default function Adjudication() {
  const workspace = useWorkspace()
  const { judge: id = '' } = useParams({ strict: false }) as { judge?: string }
  const judge = useQuery(judgeQuery(workspace.id, id))
  const report = useQuery(reportQuery(workspace.id, id))
  const above = <><A to="judges">Judges</A> / <A to={`judges/${id}`}>{judge.data?.name ?? id}</A></>
  const error = judge.error ?? report.error
  if (error) return <Page title="Adjudication" above={above}><Refusal error={error} retry={() => void report.refetch()} /></Page>
  if (!judge.data || report.isPending) return <Page title="Adjudication" above={above}><SkeletonLines lines={8} /></Page>
  const r = report.data
  return (
    <Page title="Adjudication" above={above} aside={r && `${plural(r.remaining_disagreements, 'disagreement')} left`} actions={<>
      <CurlButton small={false} call={{ path: `/v1/criteria/${id}/adjudication` }} />
      {r && r.remaining_disagreements > 0 && workspace.manages && <A to="review" query={{ new: 'true', criterion: id, kind: 'disagreements' }} className={buttonClass()}>Have others grade them…</A>}
    </>}>
      {!r ? <EmptyState title="Nothing to rule on" text="Adjudication compares a calibration’s verdicts with people’s. Calibrate the judge first."
        action={<A to={`judges/${id}`} query={{ calibrate: 'true' }} className={buttonClass('primary')}>Calibrate…</A>} />
        : <div className="grid items-start gap-4 xl:grid-cols-[minmax(0,1fr)_24rem]">
          <Cases ws={workspace.id} judge={judge.data} report={r} manages={workspace.manages} />
          <Effect judge={judge.data} report={r} />
        </div>}
    </Page>
  )
}

function Cases({ ws, judge, report, manages }: { ws: string; judge: Judge; report: Report; manages: boolean }) {
  const queries = useQueryClient()
  const [note, setNote] = useState('')
  const [later, setLater] = useState<ReadonlySet<string>>(new Set())
  const box = useRef<HTMLTextAreaElement>(null)
  const [last, setLast] = useState<{ of: Case; said: string } | null>(null)
  const [again, setAgain] = useState<Case | null>(null) // ruled on already, and shown once more
  const cases = casesOf(report, later)
  const now = again ?? cases[0]
  const rule = useMutation({
    mutationFn: ({ of: { label }, ruling }: { of: Case; ruling: Ruling }) => data(v1(ws).POST('/v1/labels/{id}/adjudication', {
      params: { path: { id: label } }, body: { ...ruling, ...(note.trim() && { note: note.trim() }) } as never,
    })),
    onSuccess: async (_, { of, ruling }) => {
      setNote('')
      setAgain(null)
      setLater((old) => new Set([...old].filter((one) => one !== of.label)))
      const said = 'kind' in ruling ? ruling.kind.replaceAll('_', ' ') : `blind ${ruling.verdict}`
      setLast({ of, said })
      announce(`Ruled: ${said}`)
      await queries.invalidateQueries({ queryKey: ['adjudication', ws, judge.id] })
      for (const key of ['criterion', 'certificate', 'labels']) void queries.invalidateQueries({ queryKey: [key, ws] })
    },
  })
  const say = (ruling: Ruling) => now && manages && !rule.isPending && rule.mutate({ of: now, ruling })
  const blind = now?.kind !== 'disagreement'
  useKeys('Adjudicate', blind ? [
    { keys: '1', label: 'Pass', run: () => void say({ verdict: 'pass' }) },
    { keys: '0', label: 'Fail', run: () => void say({ verdict: 'fail' }) },
  ] : [
    { keys: 'l', label: 'The label is wrong', run: () => void say({ kind: 'label_error' }) },
    { keys: 'g', label: 'The judge is wrong', run: () => void say({ kind: 'judge_error' }) },
    { keys: 'a', label: 'Ambiguous: withdraw the item', run: () => void say({ kind: 'ambiguous' }) },
  ], Boolean(now) && manages)
  useKeys('Adjudication', [
    { keys: 's', label: 'Leave it for later', run: () => now && setLater(new Set(later).add(now.label)) },
    { keys: 'c', label: 'Write a note', run: () => box.current?.focus() },
    { keys: 'u', label: 'Rule on the last one again', run: () => last && setAgain(last.of) },
  ], Boolean(now) || last !== null)
  const lastLine = last && (
    <p className="flex flex-wrap items-center gap-2 text-xs text-soft">
      Ruled: {last.said}. <Button small onClick={() => setAgain(last.of)}>Rule on it again <kbd className="kbd">u</kbd></Button>
      A second ruling replaces the first; both stay in the audit trail.
    </p>
  )
  if (!now) return <div><AllRuled report={report} judge={judge} /><div className="mx-auto max-w-2xl">{lastLine}</div></div>
  return (
    <section aria-label="Case" className="min-w-0">
      <div className="card mb-4 px-3.5 py-3">
        <CaseHead now={now} left={cases.filter((one) => one.kind === now.kind).length} />
        <Subject key={now.label} ws={ws} now={now} />
      </div>
      <div className="card sticky bottom-0 z-10 space-y-3 px-3.5 py-3">
        {manages ? <>
          <div className="flex flex-wrap gap-2">
            {blind ? <>
              <Choice keyName="1" busy={rule.isPending} onClick={() => say({ verdict: 'pass' })}>Pass</Choice>
              <Choice keyName="0" busy={rule.isPending} onClick={() => say({ verdict: 'fail' })}>Fail</Choice>
            </> : <>
              <Choice keyName="l" busy={rule.isPending} onClick={() => say({ kind: 'label_error' })}>Label error</Choice>
              <Choice keyName="g" busy={rule.isPending} onClick={() => say({ kind: 'judge_error' })}>Judge error</Choice>
              <Choice keyName="a" busy={rule.isPending} onClick={() => say({ kind: 'ambiguous' })}>Ambiguous</Choice>
            </>}
            <Button look="quiet" onClick={() => setLater(new Set(later).add(now.label))}>Later <kbd className="kbd max-sm:hidden">s</kbd></Button>
            <span className="ml-auto max-sm:hidden"><CurlButton call={{ method: 'POST', path: `/v1/labels/${now.label}/adjudication`, body: blind ? { verdict: 'pass' } : { kind: 'label_error', note: note || undefined } }} /></span>
          </div>
          <textarea aria-label="Note" placeholder="Note: why (c)" ref={box} rows={1} maxLength={4000} className="control w-full" value={note} onChange={(event) => setNote(event.target.value)}
            onKeyDown={(event) => event.key === 'Escape' && event.currentTarget.blur()} />
        </> : <p className="text-sm text-soft">To rule needs an owner or admin of the workspace.</p>}
        {rule.error && <Refusal error={rule.error} />}
        {again ? <p className="flex items-center gap-2 text-xs text-warn">You rule on this one again. <Button small onClick={() => setAgain(null)}>Leave it as it was</Button></p> : lastLine}
      </div>
    </section>
  )
}

const Choice = ({ keyName, busy, onClick, children }: { keyName: string; busy: boolean; onClick: () => void; children: ReactNode }) => (
  <Button disabled={busy} onClick={onClick}>{children} <kbd className="kbd max-sm:hidden">{keyName}</kbd></Button>
)

function CaseHead({ now, left }: { now: Case; left: number }) {
  if (now.kind === 'disagreement') {
    const { direction, in_report_half: measures } = now.remaining
    return (
      <header className="mb-3 flex flex-wrap items-center gap-2 text-sm">
        <Badge tone="warn">{direction === 'fp' ? 'false pass' : 'false fail'}</Badge><span className="text-soft">{directionName(direction)}</span>
        {measures && <Badge title="A correction changes what the certificate measured">measures the judge</Badge>}
        <span className="ml-auto text-xs text-faint">{plural(left, 'disagreement')} left, the surest first</span>
      </header>
    )
  }
  return (
    <header className="mb-3 flex flex-wrap items-center gap-2 text-sm">
      <Badge tone="info">{now.kind === 'tie' ? 'tie' : 'blind'}</Badge>
      <span className="text-soft">{now.kind === 'tie' ? 'People are evenly split over this item. Your verdict settles it.' : 'Judge and label agree on this item. Grade it without knowing how: an error that both share is found in no other way.'}</span>
      <span className="ml-auto text-xs text-faint">{count(left)} left</span>
    </header>
  )
}

/** What was graded. Of a blind case the server sends no grade, so that none can be on the page. */
function Subject({ ws, now }: { ws: string; now: Case }) {
  const blind = now.kind !== 'disagreement'
  const read = useQuery({
    queryKey: ['label', ws, now.label, blind], staleTime: Infinity,
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/labels/{id}', { params: { path: { id: now.label }, query: blind ? { blind: true } : {} }, signal })),
  })
  const top = useRef<HTMLDivElement>(null)
  useEffect(() => void top.current?.scrollIntoView({ block: 'nearest' }), [])
  if (read.error) return <Refusal error={read.error} />
  if (!read.data) return <SkeletonLines lines={6} />
  const label = read.data as Label
  const steps = label.subject?.steps ?? []
  return (
    <div ref={top}>
      {now.kind === 'disagreement' && (
        <div className="mb-4 grid gap-3 sm:grid-cols-2">
          <Side title="The judge" verdict={now.remaining.judge_verdict} text={now.remaining.critique}
            aside={`${percent(sureness(now.remaining.judge_verdict, now.remaining.judge_grade), 0)} sure`} />
          <Side title="The label" verdict={now.remaining.human_verdict} text={label.critique} aside={<Person id={label.author} />} />
        </div>
      )}
      {steps.map((step, i) => (
        <div key={i} className={i > 0 ? 'mt-4 border-t border-line pt-3' : ''}>
          {steps.length > 1 && <h2 className="mb-2 text-xs font-semibold text-soft">Step {i + 1} of {steps.length}</h2>}
          <Exchange messages={step.messages} response={step.response} tools={step.tools} from={repeated(steps[i - 1] as never, step as never)} />
        </div>
      ))}
    </div>
  )
}

const Side = ({ title, verdict, text, aside }: { title: string; verdict: string; text: string; aside: ReactNode }) => (
  <div className="min-w-0 rounded-md border border-line px-3 py-2 text-sm">
    <h2 className="flex items-center gap-2 font-semibold"><span className="shrink-0">{title}</span> <Status value={verdict} /><span className="ml-auto min-w-0 truncate text-xs font-normal text-faint">{aside}</span></h2>
    <p className="mt-1 break-words whitespace-pre-wrap text-soft">{text || 'No critique.'}</p>
  </div>
)

/** Before and after the rulings. It is hatched while only disagreements were ruled on: that flatters a judge. */
function Effect({ judge, report }: { judge: Judge; report: Report }) {
  const after = report.adjudicated > 0
  const unsure = report.after_is_disagreement_only && after
  return (
    <aside aria-label="Effect of the rulings">
      <Section title="Before and after">
        <IntervalPlot title="95 % intervals against 0.90" threshold={{ at: mark, label: '0.90' }} intervals={[
          ...intervalsOf(report.before, { prefix: 'Before', kappa: false }), ...(after ? intervalsOf(report.after, { prefix: 'After', unsure, kappa: false }) : []),
        ]} />
        {unsure && <p className="mt-2 text-xs text-warn">Hatched: only disagreements were ruled on so far. Grade the {plural(report.agreements_to_review.length, 'blind agreement')} to make it count.</p>}
        {!after && <p className="mt-2 text-xs text-soft">Rule on a case, and what a re-calibration would read appears here. It calls no judge and costs nothing.</p>}
        <div className="mt-3"><Facts rows={[
          ['Ruled on', <A key="r" to={`judges/${judge.id}`} query={{ tab: 'labels', ruled: 'true' }}>{count(report.adjudicated)}</A>],
          ['Label errors', count(report.by_kind.label_error)], ['Judge errors', count(report.by_kind.judge_error)], ['Ambiguous', count(report.by_kind.ambiguous)],
          ...(report.ties ? [['Ties', count(report.ties)] as [string, string]] : []),
          ['Trust', <span key="t" className="inline-flex items-center gap-1"><Status value={report.before.trust} />{after && <>→ <Status value={report.after.trust} /></>}</span>],
        ]} /></div>
      </Section>
      {report.concentration.length > 0 && (
        <Section title="Where the errors lie">
          <ul className="space-y-1 text-sm">{report.concentration.map((one) => <li key={one.direction}><strong>{percent(one.share_of_errors, 0)}</strong> {directionName(one.direction)} <span className="text-faint">({count(one.count)})</span></li>)}</ul>
        </Section>
      )}
      {report.certificate_voided && (
        <Section title="The certificate is void"><p className="text-sm text-soft">What it was measured by has changed. The judge’s answers are kept: a new calibration pays only for items that it never judged.</p>
          <A to={`judges/${judge.id}`} query={{ calibrate: 'true' }} className={`mt-2 ${buttonClass('primary')}`}>Calibrate again…</A></Section>
      )}
    </aside>
  )
}

function AllRuled({ report, judge }: { report: Report; judge: Judge }) {
  return (
    <EmptyState title="Nothing to rule on" text={report.adjudicated === 0 ? 'Judge and people agree on every item of the last calibration.'
      : `All ${plural(report.adjudicated, 'disagreement')} and the blind sample are ruled on. ${report.certificate_voided ? 'A calibration makes a new certificate of it.' : ''}`}
      action={<>{report.certificate_voided && <A to={`judges/${judge.id}`} query={{ calibrate: 'true' }} className={buttonClass('primary')}>Calibrate again…</A>}
        <A to={`judges/${judge.id}/certificate`} className={buttonClass()}>Certificate</A></>} />
  )
}
