import { CheckIcon, ChevronLeftIcon, ChevronRightIcon, ClockIcon, SkipForwardIcon, Undo2Icon, XIcon } from 'lucide-react'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { asApiError } from '../../api/errors'
import { useKeys } from '../../keys'
import { useQueryState, text } from '../../query'
import { plural } from '../../format'
import { Badge, Status } from '../../ui/Badge'
import { Button, IconButton } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { Field } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Person } from '../../ui/Person'
import { useNarrow } from '../../ui/narrow'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'
import { SkeletonLines, Time } from '../../ui/Values'
import { Exchange } from '../logs/Exchange'
import type { Item, Queue } from './api'
import { leaseOf, repeated } from './grading'
import { AllGraded } from './AllGraded'
import { useGrading, type Grading as State } from './useGrading'
import { useRemembered } from './remembered'

const schema = { item: text() }

/** One item at a time, by keyboard. The address names the item; without one it is the first that is open. */
export function Grading({ ws, queue }: { ws: string; queue: Queue }) {
  const [{ item: wanted }, set] = useQueryState(schema)
  const [autoAdvance, setAutoAdvance] = useRemembered('review.auto-advance')
  const box = useRef<HTMLTextAreaElement>(null)
  const narrow = useNarrow()
  const grading = useGrading({ ws, queue: queue.id, wanted, autoAdvance, leaseMinutes: queue.lease_minutes, onItem: (item) => set({ item }) })
  const { item, shown } = grading

  useKeys('Grade', [
    { keys: '1', label: 'Pass', run: () => grading.grade('pass') },
    { keys: '0', label: 'Fail', run: () => grading.grade('fail') },
    { keys: 's', label: 'Skip: leave it to others', run: grading.skip },
    { keys: 'u', label: 'Undo what you did last', run: grading.undo },
    { keys: 'n', label: 'Not sure: marks the next grade', run: () => grading.setDraft({ unsure: !grading.draft.unsure }) },
    { keys: 'c', label: 'Write a critique (Esc leaves it)', run: () => box.current?.focus() },
    { keys: 'a', label: 'Auto-advance, on or off', run: () => setAutoAdvance(!autoAdvance) },
    { keys: 'ArrowLeft', label: 'The item before', run: grading.back },
    { keys: 'ArrowRight', label: 'The next item', run: grading.forward },
  ])

  const error = grading.error !== null && (
    <div className="mb-3">
      <Refusal error={grading.error} retry={undefined} />
      {asApiError(grading.error).status === 409 && (
        <Button className="mt-2" onClick={grading.renew}>Take the next item</Button>
      )}
    </div>
  )
  if (shown.kind === 'loading') return <>{error || <SkeletonLines lines={8} />}</>
  if (shown.kind === 'nothing') {
    return <>{error}{shown.done ? <AllGraded ws={ws} queue={queue} mine={grading.mine} undo={grading.trail.length > 0 ? grading.undo : undefined} />
      : <Waiting grading={grading} queue={queue} />}</>
  }
  const panel = <Panel queue={queue} item={shown.item} grading={grading} box={box} autoAdvance={autoAdvance} setAutoAdvance={setAutoAdvance} />
  return (
    <>
      {error}
      {narrow && queue.criterion && <details className="card mb-3 px-3.5 py-2"><summary className="text-sm font-medium">What makes it pass</summary>
        <Told queue={queue} /></details>}
      <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_22rem]">
        <Content item={shown.item} />
        <div className="lg:sticky lg:top-4">{panel}</div>
      </div>
      {narrow && item && <Bar grading={grading} />}
    </>
  )
}

/** What is graded. A run shows its steps, each with what is new in it. */
function Content({ item }: { item: Item }) {
  const top = useRef<HTMLDivElement>(null)
  useEffect(() => void top.current?.scrollIntoView({ block: 'nearest' }), [item.id])
  return (
    <section ref={top} aria-label="What is graded" className="card min-w-0 px-3.5 py-3">
      <header className="mb-3 flex flex-wrap items-center gap-2 text-sm">
        <Badge tone="info">{item.trace_id ? `run of ${plural(item.steps.length, 'step')}` : 'exchange'}</Badge>
        <span className="text-soft">{item.reason}</span>
        <span className="ml-auto text-xs text-faint"><Id value={item.trace_id ?? item.request_id ?? item.id} /></span>
      </header>
      {item.state === 'expired' && <p className="mb-3 text-sm text-warn">It is not logged any more, and left the queue. What was graded before stands.</p>}
      {item.steps.map((step, i) => (
        <div key={i} className={i > 0 ? 'mt-4 border-t border-line pt-3' : ''}>
          {item.steps.length > 1 && <h2 className="mb-2 text-xs font-semibold text-soft">Step {i + 1} of {item.steps.length}</h2>}
          <Exchange messages={step.messages} response={step.response} tools={step.tools} from={repeated(item.steps[i - 1], step)} />
        </div>
      ))}
    </section>
  )
}

interface PanelProps {
  queue: Queue; item: Item; grading: State; box: React.RefObject<HTMLTextAreaElement | null>
  autoAdvance: boolean; setAutoAdvance: (on: boolean) => void
}

function Panel({ queue, item, grading, box, autoAdvance, setAutoAdvance }: PanelProps) {
  const { draft, setDraft, mine, busy } = grading
  const isGraded = queue.criterion?.scale === 'graded'
  return (
    <div className="space-y-4">
      <section aria-label="Your grade" className="card space-y-3 px-3.5 py-3">
        <div className="flex items-center gap-2 text-sm">
          <Mine item={item} />
          <span className="ml-auto flex items-center text-xs text-soft">
            <IconButton label="The item before (←)" disabled={busy || !grading.trail.before(item.id)} onClick={grading.back}><ChevronLeftIcon size={16} /></IconButton>
            {grading.trail.place(item.id)}
            <IconButton label="The next item (→)" disabled={busy} onClick={grading.forward}><ChevronRightIcon size={16} /></IconButton>
          </span>
        </div>
        {grading.canGrade && <>
          <LeaseLine item={item} ahead={grading.ahead} renew={grading.renew} />
          <div className="hidden grid-cols-2 gap-2 sm:grid"><Verdicts grading={grading} /></div>
          <Field label={<>Critique <kbd className="kbd">c</kbd></>} hint="Why. Judges learn from it; a skip sends it as the reason.">
            {(props) => <textarea {...props} ref={box} rows={3} maxLength={8000} className="control w-full" value={draft.critique}
              onChange={(event) => setDraft({ critique: event.target.value })}
              onKeyDown={(event) => {
                if (event.key === 'Escape') event.currentTarget.blur()
              }} />}
          </Field>
          {isGraded && (
            <Field label="Grade" hint={`0 to 1, if you can tell; ${queue.criterion?.pass_threshold} and above passes`}>
              {(props) => <input {...props} type="number" min={0} max={1} step={0.05} className="control w-28" value={draft.grade}
                onChange={(event) => setDraft({ grade: event.target.value })} />}
            </Field>
          )}
          <Switch on={draft.unsure} onChange={(unsure) => setDraft({ unsure })} label={<>Not sure <kbd className="kbd">n</kbd></>}
            hint="The verdict counts, and is marked." />
          <div className="hidden gap-2 sm:flex">
            <Button className="flex-1" disabled={busy} icon={<SkipForwardIcon size={14} />} onClick={grading.skip}>Skip <kbd className="kbd">s</kbd></Button>
            <Button className="flex-1" disabled={busy || !grading.trail.before(item.id)} icon={<Undo2Icon size={14} />} onClick={grading.undo}>Undo <kbd className="kbd">u</kbd></Button>
          </div>
        </>}
        {grading.canUndo && <Done item={item} grading={grading} />}
        {item.my_state === 'open' && (
          <p className="text-sm text-soft">You look at an item that is not claimed by you. <button type="button" className="link" onClick={grading.renew}>Grade the next one</button></p>
        )}
        <Switch on={autoAdvance} onChange={setAutoAdvance} label={<>Auto-advance <kbd className="kbd">a</kbd></>} hint="A grade opens the next item. This browser remembers it." />
        {mine && <p className="border-t border-line pt-2 text-xs text-soft">You graded {mine.graded}{mine.skipped > 0 && `, skipped ${mine.skipped}`}; {mine.waiting} more {mine.waiting === 1 ? 'waits' : 'wait'} for you.</p>}
      </section>
      {item.judge && (
        <section aria-label="The judge" className="card px-3.5 py-3 text-sm">
          <h2 className="mb-1 flex items-center gap-2 font-semibold">The judge says <Status value={item.judge.verdict} />
            <span className="text-xs font-normal text-soft">grade {item.judge.grade.toFixed(2)}</span></h2>
          <p className="break-words whitespace-pre-wrap text-soft">{item.judge.critique || 'No critique.'}</p>
        </section>
      )}
      {item.grades.length > 0 && <Others item={item} />}
      <section className="card hidden px-3.5 py-3 sm:block"><Told queue={queue} /></section>
      {(item.request_id || item.trace_id) && (
        <p className="flex items-center gap-2 text-xs text-soft">The same label by API
          <CurlButton small call={{ method: 'POST', path: '/v1/labels', body: {
            ...(item.trace_id ? { trace_id: item.trace_id } : { request_id: item.request_id }),
            ...(queue.criterion_id && { criterion_id: queue.criterion_id }), verdict: 'pass', ...(draft.critique && { critique: draft.critique }),
          } }} /></p>
      )}
    </div>
  )
}

/** What graders are told: the instructions and the rubric. */
function Told({ queue }: { queue: Queue }) {
  return (
    <div className="space-y-2 text-sm">
      {queue.criterion && <div><h2 className="font-semibold">{queue.criterion.name}</h2>
        <p className="mt-1 max-h-72 overflow-auto break-words whitespace-pre-wrap" tabIndex={0}>{queue.criterion.rubric}</p></div>}
      {queue.instructions && <div><h2 className="font-semibold">Instructions</h2>
        <p className="mt-1 max-h-48 overflow-auto break-words whitespace-pre-wrap text-soft" tabIndex={0}>{queue.instructions}</p></div>}
      <p className="text-xs text-faint">
        {queue.blind ? 'Blind: you see neither what the judge said nor what others grade.' : 'Open: what the judge said is shown.'}
        {queue.graders_per_item > 1 && ` ${queue.graders_per_item} people grade each item.`}
      </p>
    </div>
  )
}

function Verdicts({ grading }: { grading: State }) {
  const disabled = grading.busy || !grading.canGrade
  return <>
    <Button className="h-10! border-pass/60! text-pass! hover:bg-pass-ground!" disabled={disabled} icon={<CheckIcon size={16} />}
      onClick={() => grading.grade('pass')}>Pass <kbd className="kbd max-sm:hidden">1</kbd></Button>
    <Button className="h-10! border-fail/60! text-fail! hover:bg-fail-ground!" disabled={disabled} icon={<XIcon size={16} />}
      onClick={() => grading.grade('fail')}>Fail <kbd className="kbd max-sm:hidden">0</kbd></Button>
  </>
}

/** The actions on a phone, below the text. */
function Bar({ grading }: { grading: State }) {
  return (
    <div className="sticky bottom-0 z-20 -mx-3 mt-3 grid grid-cols-4 gap-2 border-t border-line bg-surface p-2">
      {grading.canGrade ? <>
        <Verdicts grading={grading} />
        <Button className="h-10!" disabled={grading.busy} onClick={grading.skip}>Skip</Button>
        <Button className="h-10!" disabled={grading.busy || !grading.trail.before(grading.item?.id)} onClick={grading.undo}>Undo</Button>
      </> : <>
        <Button className="col-span-2 h-10!" disabled={grading.busy} onClick={grading.undo}>Undo</Button>
        <Button look="primary" className="col-span-2 h-10!" disabled={grading.busy} onClick={grading.forward}>Next</Button>
      </>}
    </div>
  )
}

function Mine({ item }: { item: Item }): ReactNode {
  switch (item.my_state) {
    case 'claimed': return <span className="font-semibold">Your grade</span>
    case 'graded': return <span className="flex items-center gap-2 font-semibold">You said <Status value={item.grade?.verdict ?? 'graded'} />{item.grade?.unsure && <Badge>not sure</Badge>}</span>
    case 'skipped': return <span className="font-semibold">You skipped it</span>
    default: return <span className="font-semibold">Not yours</span>
  }
}

function Done({ item, grading }: { item: Item; grading: State }) {
  return (
    <div className="space-y-2 text-sm">
      {item.grade?.critique && <p className="break-words whitespace-pre-wrap text-soft">“{item.grade.critique}”</p>}
      {item.grade && <p className="text-xs text-faint"><Time value={item.grade.at} relative /> · label <Id value={item.grade.label_id} /></p>}
      <div className="hidden gap-2 sm:flex">
        <Button className="flex-1" disabled={grading.busy} icon={<Undo2Icon size={14} />} onClick={grading.undo}>Undo <kbd className="kbd">u</kbd></Button>
        <Button look="primary" className="flex-1" disabled={grading.busy} onClick={grading.forward}>Next <kbd className="kbd">→</kbd></Button>
      </div>
    </div>
  )
}

function Others({ item }: { item: Item }) {
  return (
    <section aria-label="Grades" className="card px-3.5 py-3 text-sm">
      <h2 className="mb-1 flex items-center gap-2 font-semibold">Grades {item.conflict && <Badge tone="warn">conflict</Badge>}</h2>
      <ul className="space-y-1.5">
        {item.grades.map((grade) => (
          <li key={grade.user_id}>
            <span className="flex items-center gap-2"><Status value={grade.verdict} /> <span className="min-w-0 truncate text-xs text-soft"><Person id={grade.user_id} /></span>
              {grade.unsure && <Badge>not sure</Badge>}</span>
            {grade.critique && <p className="break-words text-soft">“{grade.critique}”</p>}
          </li>
        ))}
      </ul>
    </section>
  )
}

/** How long the item is kept. A claim that has ended still counts while nobody else took the item. */
function LeaseLine({ item, ahead, renew }: { item: Item; ahead: number; renew: () => void }) {
  const [now, setNow] = useState(Date.now)
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 5000)
    return () => clearInterval(timer)
  }, [])
  const lease = leaseOf(item, now + ahead)
  if (lease.state === 'none') return null
  if (lease.state === 'over') {
    return (
      <p role="status" className="rounded-md bg-warn-ground px-2.5 py-1.5 text-xs text-warn">
        Your claim has ended. Your grade still counts unless somebody else took the item meanwhile.{' '}
        <button type="button" className="underline" onClick={renew}>Claim it again</button>
      </p>
    )
  }
  return (
    <p className={`flex items-center gap-1.5 text-xs ${lease.soon ? 'text-warn' : 'text-soft'}`}>
      <ClockIcon size={12} aria-hidden /> Kept for you for {plural(lease.minutes, 'minute')}
      {lease.soon && <button type="button" className="underline" onClick={renew}>keep it longer</button>}
    </p>
  )
}

const askAgainAfter = 10_000

/** Others hold what is left, or items are still being added. */
function Waiting({ grading, queue }: { grading: State; queue: Queue }) {
  const again = useRef(grading.renew)
  again.current = grading.renew
  useEffect(() => {
    const timer = setInterval(() => again.current(), askAgainAfter)
    return () => clearInterval(timer)
  }, [])
  const isFilling = ['QUEUED', 'RUNNING'].includes(queue.fill?.status ?? '')
  return (
    <EmptyState title={isFilling ? 'Items are being added' : 'Others hold the rest'}
      text={isFilling ? 'The queue is filled now. The first item opens as soon as it is there.'
        : `Each item that is left is claimed by somebody else. What is not graded within ${plural(queue.lease_minutes, 'minute')} comes back. This page asks again by itself.`}
      action={<><Button onClick={grading.renew} busy={grading.busy}>Ask again</Button><A to="review" className="link self-center text-sm">All queues</A></>} />
  )
}
