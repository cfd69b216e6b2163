import { useQuery } from '@tanstack/react-query'
import { BellIcon, CheckCircle2Icon, CircleIcon, InboxIcon } from 'lucide-react'
import { useEffect, type ReactNode } from 'react'
import { curl } from '../../api/curl'
import { useIsDemo, useWorkspace } from '../../api/session'
import { DemoOffer } from '../../app/Demo'
import { rememberWorkspace } from '../../app/Start'
import { lastDays, StackedBars } from '../../chart/StackedBars'
import { money, plural } from '../../format'
import { Status } from '../../ui/Badge'
import { Snippet } from '../../ui/EmptyState'
import { Page, Section } from '../../ui/Page'
import { ToPlace, type Place } from '../../ui/Place'
import { Refusal } from '../../ui/Refusal'
import { Money, Progress, Skeleton, Stats, Time } from '../../ui/Values'
import { FirstRequest } from './FirstRequest'
import { homeQuery, stepHints, stepName, type HomeData, type Job, type Notice } from './home'

export default function Home() {
  const workspace = useWorkspace()
  const home = useQuery(homeQuery(workspace.id))
  const isDemo = useIsDemo()
  useEffect(() => rememberWorkspace(workspace.id), [workspace.id])
  if (home.error && !home.data) {
    return <Page title="Home"><Refusal error={home.error} retry={() => void home.refetch()} /></Page>
  }
  const data = home.data
  return (
    <Page title="Home" aside={workspace.name}>
      {!data ? <Waiting /> : <>
        {isDemo ? <Filling jobs={data.jobs} /> : data.spend.last_7_days.requests === 0 && workspace.role === 'owner' && <DemoOffer />}
        {data.setup.next !== null && !isDemo && <Setup setup={data.setup} />}
        <Money4 data={data} />
        <div className="mt-4 grid items-start gap-x-4 lg:grid-cols-[3fr_2fr] lg:grid-rows-[auto_1fr]">
          <div className="min-w-0 max-lg:order-2">
            <Section title="Spend by model" aside="last 7 days, UTC">
              <StackedBars title="Cost" days={lastDays(7)} format={money}
                values={data.spend.series.points.map((p) => ({ day: p.day, group: p.rest ? 'other' : p.group, value: p.cost_usd }))} />
            </Section>
          </div>
          <div className="min-w-0 max-lg:order-3 lg:col-start-1">
            <Section title="Jobs" aside="the newest" flush>
              {data.jobs.length === 0 ? <Quiet icon={<CheckCircle2Icon size={16} />} text="No job has run yet." />
                : <ul>{data.jobs.map((job) => <JobLine key={job.id} job={job} />)}</ul>}
            </Section>
          </div>
          <div className="min-w-0 max-lg:order-1 lg:col-start-2 lg:row-span-2 lg:row-start-1">
            <Section title="Alarms" flush>
              {data.alarms.length === 0 ? <Quiet icon={<BellIcon size={16} />} text="Nothing is wrong." />
                : <ul>{data.alarms.map((notice, i) => <NoticeLine key={i} notice={notice} alarm />)}</ul>}
            </Section>
            <Section title="Waiting for you" flush>
              {data.waiting.length === 0 ? <Quiet icon={<InboxIcon size={16} />} text="Nothing waits for your judgement." />
                : <ul>{data.waiting.map((notice, i) => <NoticeLine key={i} notice={notice} />)}</ul>}
            </Section>
          </div>
        </div>
      </>}
    </Page>
  )
}

function Setup({ setup }: { setup: HomeData['setup'] }) {
  const done = setup.steps.filter((step) => step.done).length
  return (
    <Section title="Set up" aside={`${done} of ${setup.steps.length} done`} flush>
      <ol>
        {setup.steps.map((step) => {
          const isNext = step.id === setup.next
          return (
            <li key={step.id} className="border-b border-line px-3.5 py-2 last:border-b-0">
              <div className="flex items-center gap-2.5 text-sm">
                {step.done ? <CheckCircle2Icon size={16} className="shrink-0 text-pass" aria-label="done" />
                  : <CircleIcon size={16} className="shrink-0 text-faint" aria-label="to do" />}
                <ToPlace place={step.link} className={step.done ? 'text-soft' : isNext ? 'link font-medium' : 'link'}>{stepName(step.id)}</ToPlace>
                {!isNext && !step.done && <span className="hidden min-w-0 truncate text-xs text-faint sm:block">{stepHints.get(step.id) ?? step.action}</span>}
              </div>
              {isNext && (
                <div className="mt-1 pl-6.5 text-sm text-soft">
                  {sentence(stepHints.get(step.id) ?? step.action)}
                  {(step.id === 'send_request' || step.id === 'create_key') && <FirstRequest />}
                  {step.id === 'make_dataset' && <Snippet text={curl({ method: 'POST', path: '/v1/datasets/from_logs', body: { name: 'first', filters: {} } })} />}
                </div>
              )}
            </li>
          )
        })}
      </ol>
    </Section>
  )
}

const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`

function Money4({ data }: { data: HomeData }) {
  const { wallet, spend } = data
  return (
    <Stats>
      <Tile label="Free" value={<Money usd={wallet.free_usd} />} hint={`of ${money(wallet.balance_usd)}`} place={wallet.link} />
      <Tile label="Held" value={<Money usd={wallet.held_usd} />} hint="by what is running" place={wallet.link} />
      <Tile label="Today" value={<Money usd={spend.today.cost_usd} />} hint={requests(spend.today)} place={spend.today.link} />
      <Tile label="7 days" value={<Money usd={spend.last_7_days.cost_usd} />} hint={requests(spend.last_7_days)} place={spend.last_7_days.link} />
    </Stats>
  )
}

const requests = (c: { requests: number; errors: number }) =>
  plural(c.requests, 'request') + (c.errors ? `, ${plural(c.errors, 'error')}` : '')

function Tile({ label, value, hint, place }: { label: string; value: ReactNode; hint: string; place: Place }) {
  return (
    <ToPlace place={place} className="card block min-w-0 px-3.5 py-2.5 hover:border-edge">
      <span className="block text-xs text-soft">{label}</span>
      <span className="mt-0.5 block truncate text-xl font-semibold">{value}</span>
      <span className="block text-xs text-faint">{hint}</span>
    </ToPlace>
  )
}

function NoticeLine({ notice, alarm }: { notice: Notice; alarm?: boolean }) {
  return (
    <li className="border-b border-line px-3.5 py-2 text-sm last:border-b-0">
      <div className="flex items-baseline gap-2">
        {alarm && <span aria-hidden className={`size-2 shrink-0 rounded-full ${isGood(notice) ? 'bg-pass' : 'bg-fail'}`} />}
        <ToPlace place={notice.link} className="link min-w-0 font-medium break-words">{notice.title}</ToPlace>
        {notice.count ? <span className="text-soft">{notice.count}</span> : null}
        {notice.at && <span className="ml-auto shrink-0 text-xs text-faint"><Time value={notice.at} relative /></span>}
      </div>
      {notice.detail && <p className="text-xs break-words text-soft">{notice.detail}</p>}
    </li>
  )
}

/** A verdict that asks for a decision, and nothing that is wrong. */
const isGood = (notice: Notice) => notice.kind === 'gate.promote'

/** How far a demo is filled. */
function Filling({ jobs }: { jobs: Job[] }) {
  const filling = jobs.find((job) => job.kind === 'demo' && ['QUEUED', 'RUNNING'].includes(job.status))
  if (!filling) return null
  return (
    <section aria-label="The demo is being filled" className="card mb-4 px-3.5 py-3">
      <h2 className="text-sm font-semibold">The demo is being filled</h2>
      <p className="mb-2 text-sm text-soft">A minute or two. Every page can be opened meanwhile.</p>
      <Progress label="The demo" done={filling.progress?.done ?? 0} total={filling.progress?.total ?? 0} />
    </section>
  )
}

function JobLine({ job }: { job: Job }) {
  const done = job.progress?.done ?? job.done ?? 0
  const total = job.progress?.total ?? job.total ?? 0
  return (
    <li className="border-b border-line px-3.5 py-2 text-sm last:border-b-0">
      <div className="flex items-center gap-2">
        <ToPlace place={job.link} className="link min-w-0 truncate font-medium">{job.title}</ToPlace>
        <Status value={job.status} />
        <span className="ml-auto shrink-0 text-xs text-faint"><Time value={job.created_at} relative /></span>
      </div>
      {job.error && <p className="text-xs break-words text-fail">{job.error}</p>}
      {['QUEUED', 'RUNNING'].includes(job.status) && total > 0 && <Progress label={job.title} done={done} total={total} />}
    </li>
  )
}

const Quiet = ({ icon, text }: { icon: ReactNode; text: string }) => (
  <p className="flex items-center gap-2 px-3.5 py-3 text-sm text-soft"><span aria-hidden>{icon}</span>{text}</p>
)

const Waiting = () => (
  <div role="status" aria-label="Loading">
    <Stats>{['a', 'b', 'c', 'd'].map((k) => <Skeleton key={k} className="h-[76px]" />)}</Stats>
    <div className="mt-4 grid gap-4 lg:grid-cols-[3fr_2fr]"><Skeleton className="h-64" /><Skeleton className="h-64" /></div>
  </div>
)
