// How far a queue is, what its judge still needs, and how far its graders agree.
import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { IntervalPlot } from '../../chart/IntervalPlot'
import { count, plural } from '../../format'
import { Refusal } from '../../ui/Refusal'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Price, Progress as Bar, SkeletonLines, Stat, Stats } from '../../ui/Values'
import { agreementQuery, progressQuery, type Agreement, type Progress, type Queue } from './api'
import { toTier } from './grading'

export function ProgressView({ ws, queue }: { ws: string; queue: Queue }) {
  const progress = useQuery(progressQuery(ws, queue.id))
  const agreement = useQuery(agreementQuery(ws, queue.id))
  const error = progress.error ?? agreement.error
  if (error) return <Refusal error={error} retry={() => void Promise.all([progress.refetch(), agreement.refetch()])} />
  if (!progress.data) return <SkeletonLines />
  const { counts } = progress.data
  const items = (query: Record<string, string>) => (queue.may_manage ? { to: `review/${queue.id}`, query: { view: 'items', ...query } } : {})
  return (
    <>
      <div className="mb-4"><Stats>
        <Stat label="Done" value={`${count(counts.done)} of ${count(counts.items)}`} {...items({ state: 'done' })} />
        <Stat label="Open" value={count(counts.open)} hint={`${count(counts.claimed)} claimed now`} {...items({ state: 'open' })} />
        <Stat label="Conflicts" value={count(counts.conflicts)} hint="graders differ" {...items({ conflict: 'true' })} />
        <Stat label="Expired" value={count(counts.expired)} hint="not logged any more" {...items({ state: 'expired' })} />
      </Stats></div>
      <div className="grid items-start gap-x-4 lg:grid-cols-2">
        <div className="min-w-0">
          <Section title="Labels that the judge still needs"><Tiers progress={progress.data} queue={queue} /></Section>
        </div>
        <div className="min-w-0">
          <Section title="Agreement between people"><AgreementView agreement={agreement.data} queue={queue} /></Section>
          <Section title="Graders"><Graders progress={progress.data} /></Section>
        </div>
      </div>
    </>
  )
}

const tiers = [
  ['measured', 'Measured', 'evals, gates that recommend, reward'],
  ['calibrated', 'Calibrated', 'gates that act by themselves, anchors'],
] as const

/** For each tier, how many items of each class are graded and how many are missing. */
export function Tiers({ progress, queue }: { progress: Progress; queue: Queue }) {
  if (!queue.criterion_id) return <p className="text-sm text-soft">This queue is for no judge: its labels stand by themselves.</p>
  if (!progress.needed || progress.pass === null || progress.fail === null) {
    return <p className="text-sm text-soft">Members of the workspace see what the judge needs.</p>
  }
  const have = { pass: progress.pass, fail: progress.fail }
  return (
    <div className="space-y-3 text-sm">
      <p className="text-soft">
        <A to={`judges/${queue.criterion_id}`} query={{ tab: 'labels' }}>{plural(have.pass, 'item')} pass, {count(have.fail)} fail</A>, from wherever they were graded.
      </p>
      {tiers.map(([tier, name, unlocks]) => {
        const to = toTier(have, progress.needed![tier])
        return (
          <div key={tier}>
            <p className="mb-1 font-medium">{name} <span className="text-xs font-normal text-faint">{unlocks}</span></p>
            {to.done ? <p className="text-xs text-pass">Enough of both.</p> : (
              <dl className="grid grid-cols-[3rem_1fr] items-center gap-x-2 gap-y-1">
                {(['pass', 'fail'] as const).map((verdict) => (
                  <Row key={verdict} name={verdict}>
                    {to[verdict].lacks === 0 ? <span className="text-xs text-pass">enough</span>
                      : <><Bar label={`${verdict} for ${name}`} done={to[verdict].has} total={to[verdict].of} />
                        <span className="text-xs text-soft">about {count(to[verdict].lacks)} more</span></>}
                  </Row>
                ))}
              </dl>
            )}
          </div>
        )
      })}
      <p className="text-xs text-faint">Half of the items measures the judge, the other half tunes it, so that about twice as many must be graded.</p>
      {progress.estimated_calibration_usd !== null && (
        <p><A to={`judges/${queue.criterion_id}`} query={{ calibrate: 'true' }}>Calibrate the judge</A>, <Price usd={progress.estimated_calibration_usd} /></p>
      )}
    </div>
  )
}

const Row = ({ name, children }: { name: string; children: ReactNode }) => (
  <div className="contents"><dt className="text-xs text-soft">{name}</dt><dd>{children}</dd></div>
)

/** Percent agreement, and Krippendorff's alpha with its interval. */
export function AgreementView({ agreement, queue }: { agreement?: Agreement; queue: Pick<Queue, 'graders_per_item' | 'id'> }) {
  if (!agreement) return <SkeletonLines lines={2} />
  if (agreement.pairs === 0) {
    return <p className="text-sm text-soft">{queue.graders_per_item > 1
      ? 'No item has been graded by two people yet.'
      : 'One person grades each item. Ask for two graders per item to learn how far people agree.'}</p>
  }
  const { alpha, alpha_ci: ci, percent } = agreement
  return (
    <div className="space-y-2 text-sm">
      <p><strong>{percent?.toFixed(1)} %</strong> of {plural(agreement.pairs, 'pair')} of grades agree, on {plural(agreement.items, 'item')} that {plural(agreement.graders, 'person', 'people')} graded.</p>
      {alpha !== null && ci ? (
        <IntervalPlot title="Krippendorff’s alpha, 95 %" domain={[Math.min(0, ci[0]), 1]} threshold={{ at: 0.667, label: 'tentative' }}
          intervals={[{ label: 'alpha', value: alpha, low: ci[0], high: ci[1] }]} />
      ) : alpha !== null ? <p className="text-soft">Alpha {alpha.toFixed(3)}; an interval needs ten items.</p>
        : <p className="text-soft">Alpha is not defined: all grades are the same.</p>}
      <p className="text-xs text-faint">1 is perfect, 0 is chance. Below 0.667 the rubric leaves too much open: make it clearer before more is graded.</p>
    </div>
  )
}

function Graders({ progress }: { progress: Progress }) {
  if (progress.graders.length === 0) return <p className="text-sm text-soft">Nobody has graded yet.</p>
  return (
    <table className="w-full text-sm">
      <thead className="text-left text-xs text-soft"><tr><th scope="col" className="pb-1 font-medium">Person</th>
        {['Graded', 'Skipped', 'Not sure'].map((name) => <th key={name} scope="col" className="pb-1 text-right font-medium">{name}</th>)}</tr></thead>
      <tbody>
        {progress.graders.map((grader) => (
          <tr key={grader.user_id} className="border-t border-line">
            <td className="max-w-48 truncate py-1">{grader.email || grader.user_id}</td>
            <td className="text-right">{count(grader.graded)}</td><td className="text-right">{count(grader.skipped)}</td>
            <td className="text-right">{count(grader.unsure)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}
