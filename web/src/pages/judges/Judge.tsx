import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { GavelIcon } from 'lucide-react'
import { useEffect, useRef, useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspace } from '../../api/session'
import { useCommands } from '../../app/commands'
import { useToast } from '../../app/Toasts'
import { IntervalPlot } from '../../chart/IntervalPlot'
import { useKeys } from '../../keys'
import { flag, oneOf, useQueryState } from '../../query'
import { count } from '../../format'
import { Badge, Status } from '../../ui/Badge'
import { Button, buttonClass } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { Confirm } from '../../ui/Dialog'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Tabs } from '../../ui/Tabs'
import { Facts, SkeletonLines, Time } from '../../ui/Values'
import { calibrationsQuery, certificateQuery, isRunning, judgeQuery, type Judge } from './api'
import { intervalsOf } from './blocks'
import { Calibrate } from './Calibrate'
import { Calibrations } from './Calibrations'
import { Drafts } from './Drafts'
import { History } from './History'
import { JudgeForm } from './JudgeForm'
import { Labels } from './Labels'
import { Ladder } from './Ladder'
import { mark, needSentence } from './ladder'
import { Monitoring } from './Monitoring'
import { notYours, RunState } from './runs'
import { Scans } from './Scans'

const tabs = ['about', 'labels', 'calibrations', 'scans', 'monitoring', 'drafts', 'versions'] as const
const schema = { tab: oneOf(tabs, 'about'), calibrate: flag, edit: flag }

/** A judge: what it is told, what it is worth, and everything that can be done with it. */
export default function JudgePage() {
  const workspace = useWorkspace()
  const queries = useQueryClient()
  const { judge: id = '' } = useParams({ strict: false }) as { judge?: string }
  const [state, set] = useQueryState(schema)
  const judge = useQuery(judgeQuery(workspace.id, id))
  const runs = useQuery(calibrationsQuery(workspace.id, id))
  const running = runs.data?.data.find(isRunning)
  useRefreshAfter(running?.id, () => {
    for (const key of ['criterion', 'criteria', 'certificate', 'adjudication']) void queries.invalidateQueries({ queryKey: [key, workspace.id] })
  })
  const calibrate = () => set({ calibrate: true })
  useKeys('Judge', [{ keys: 'c', label: 'Calibrate', run: calibrate }], workspace.manages)
  useCommands(workspace.manages ? [{ id: 'calibrate', label: `Calibrate ${judge.data?.name ?? 'this judge'}`, run: calibrate }] : [])
  const above = <A to="judges">Judges</A>
  if (judge.error) return <Page title="Judge" above={above}><Refusal error={judge.error} retry={() => void judge.refetch()} /></Page>
  const j = judge.data
  if (!j) return <Page title="Judge" above={above}><SkeletonLines lines={8} /></Page>
  return (
    <Page title={j.name} above={above} aside={<><Status value={j.trust} /><span className="text-xs">version {j.version}</span></>} actions={<>
      <A to={`judges/${id}/adjudication`} className={buttonClass()}><GavelIcon size={14} aria-hidden /> Adjudicate</A>
      <A to={`judges/${id}/certificate`} className={buttonClass()}>Certificate</A>
      <Button look="primary" disabled={!workspace.manages || Boolean(running)} title={workspace.manages ? undefined : notYours} onClick={calibrate}>Calibrate…</Button>
    </>}>
      {running && <div className="card mb-4 px-3.5 py-2.5"><p className="mb-1 text-xs text-soft">Calibration</p>
        <RunState run={running} label="Calibration" cancel={() => data(v1(workspace.id).POST('/v1/criteria/{id}/calibrations/{run_id}/cancel', { params: { path: { id, run_id: running.id } } }))} /></div>}
      <Tabs label="Views of the judge" value={state.tab} onChange={(tab) => set({ tab: tab as (typeof tabs)[number] }, { push: true })} tabs={[
        { value: 'about', label: 'About', content: <About ws={workspace.id} judge={j} edit={() => set({ edit: true })} /> },
        { value: 'labels', label: `Labels ${count(j.labels.pass + j.labels.fail)}`, content: <Labels ws={workspace.id} judge={id} /> },
        { value: 'calibrations', label: 'Calibrations', content: <Calibrations ws={workspace.id} judge={id} /> },
        { value: 'scans', label: 'Scans', content: <Scans ws={workspace.id} judge={j} /> },
        { value: 'monitoring', label: 'Monitoring', content: <Monitoring ws={workspace.id} judge={j} /> },
        { value: 'drafts', label: 'Improve', content: <Drafts ws={workspace.id} judge={j} /> },
        { value: 'versions', label: 'Versions', content: <History ws={workspace.id} judge={id} /> },
      ]} />
      {state.calibrate && <Calibrate ws={workspace.id} judge={j} onClose={() => set({ calibrate: false })} />}
      {state.edit && <JudgeForm ws={workspace.id} judge={j} onClose={() => set({ edit: false })} onDone={() => set({ edit: false })} />}
    </Page>
  )
}

/** Calls once when what was running is not running any more. */
function useRefreshAfter(running: string | undefined, refresh: () => void) {
  const before = useRef(running)
  const latest = useRef(refresh)
  latest.current = refresh
  useEffect(() => {
    if (before.current && before.current !== running) latest.current()
    before.current = running
  }, [running])
}

function About({ ws, judge, edit }: { ws: string; judge: Judge; edit: () => void }) {
  const { manages } = useWorkspace()
  const certificate = useQuery(certificateQuery(ws, judge.id)).data
  const need = needSentence(judge.labels)
  const filters = Object.entries(judge.filters).filter(([, value]) => value !== undefined && value !== '')
  return (
    <div className="grid items-start gap-x-4 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
      <div className="min-w-0">
        <Section title="Rubric" actions={<Button small disabled={!manages} title={manages ? undefined : notYours} onClick={edit}>Change…</Button>}>
          <p className="text-sm break-words whitespace-pre-wrap">{judge.rubric}</p>
        </Section>
        <Section title="Facts" actions={<CurlButton call={{ path: `/v1/criteria/${judge.id}` }} />}>
          <Facts rows={[
            ['Id', <Id key="i" value={judge.id} />],
            ['Model', <code key="m" className="font-mono text-xs">{judge.judge_model}</code>],
            ['Scale', judge.scale === 'graded' ? `graded, passes from ${judge.pass_threshold}` : 'binary'],
            ['Examples', judge.few_shot ? `shown: ${judge.few_shot_labels.length || 'chosen at the next calibration'}` : 'none are shown'],
            ['Applies to', filters.length ? filters.map(([name, value]) => `${name} ${String(value)}`).join(', ') : 'every logged exchange'],
            ['Labels', <A key="l" to={`judges/${judge.id}`} query={{ tab: 'labels' }}>{count(judge.labels.pass)} pass, {count(judge.labels.fail)} fail</A>],
            ['Monitoring', <A key="w" to={`judges/${judge.id}`} query={{ tab: 'monitoring' }}>{judge.monitoring?.enabled ? 'on' : 'off'}</A>],
            ['Made', <Time key="t" value={judge.created_at} />],
          ]} />
          <Delete ws={ws} judge={judge} />
        </Section>
      </div>
      <div className="min-w-0">
        <Section title="Trust" actions={<A to={`judges/${judge.id}/certificate`} className="link text-xs">Certificate</A>}>
          {certificate?.voided && <p className="mb-3 rounded-md bg-fail-ground px-3 py-2 text-sm"><Badge tone="fail">void</Badge> since <Time value={certificate.voided_at} relative />: {certificate.voided_reason}</p>}
          {certificate && certificate.n > 0 && <div className="mb-4"><IntervalPlot title="Measured, 95 % intervals" threshold={{ at: mark, label: '0.90' }} intervals={intervalsOf(certificate)} /></div>}
          {!certificate && need && <p className="mb-3 text-sm">{need[0]!.toUpperCase() + need.slice(1)}. <A to="review" query={{ new: 'true', criterion: judge.id }}>Grade in a queue</A></p>}
          <Ladder tier={judge.trust} block={certificate && !certificate.voided ? certificate : null} voided={certificate?.voided} />
        </Section>
      </div>
    </div>
  )
}

function Delete({ ws, judge }: { ws: string; judge: Judge }) {
  const { manages } = useWorkspace()
  const queries = useQueryClient()
  const navigate = useNavigate()
  const { tell } = useToast()
  const [open, setOpen] = useState(false)
  return (
    <div className="mt-3 border-t border-line pt-3">
      <Button small look="danger" disabled={!manages} title={manages ? undefined : notYours} onClick={() => setOpen(true)}>Delete the judge…</Button>
      <Confirm open={open} onClose={() => setOpen(false)} danger title="Delete the judge" action="Delete" typedName={judge.name}
        text="Its labels stay. Its certificate becomes void, its queues are closed. This cannot be undone."
        run={async () => {
          await data(v1(ws).DELETE('/v1/criteria/{id}', { params: { path: { id: judge.id } } }))
          await queries.invalidateQueries({ queryKey: ['criteria', ws] })
          tell('Judge deleted')
          void navigate({ to: `/w/${ws}/judges` as never })
        }} />
    </div>
  )
}
