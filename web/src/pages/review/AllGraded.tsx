import { useQuery } from '@tanstack/react-query'
import { CheckCircle2Icon } from 'lucide-react'
import { money, plural } from '../../format'
import { Button, buttonClass } from '../../ui/Button'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { progressQuery, type MyCounts, type Queue } from './api'
import { Tiers } from './Progress'

/** What comes after the last item: a calibration, with its price. */
export function AllGraded({ ws, queue, mine, undo }: { ws: string; queue: Queue; mine: MyCounts | null; undo?: () => void }) {
  const progress = useQuery(progressQuery(ws, queue.id)).data
  const price = progress?.estimated_calibration_usd ?? null
  const nothingYet = (progress?.counts.items ?? queue.counts.items) === 0
  const open = progress?.counts.open ?? 0
  return (
    <div className="mx-auto max-w-2xl">
      <section className="card mb-4 px-5 py-5">
        <h2 className="flex items-center gap-2 text-lg font-semibold">{!nothingYet && <CheckCircle2Icon size={18} className="text-pass" aria-hidden />}
          {nothingYet ? 'This queue has no items' : open === 0 ? 'All graded' : 'Nothing is left for you'}</h2>
        <p className="mt-1 text-sm text-soft">
          {nothingYet ? <Nothing queue={queue} /> : <>
            You graded {plural(mine?.graded ?? 0, 'item')}{mine?.skipped ? ` and skipped ${mine.skipped}` : ''}.
            {open > 0 && ` ${plural(open, 'item')} still ${open === 1 ? 'waits' : 'wait'} for somebody else.`} Thank you.</>}
        </p>
        <div className="mt-4 flex flex-wrap items-center gap-2">
          {queue.may_manage && queue.criterion_id && price !== null && (
            <A to={`judges/${queue.criterion_id}`} query={{ calibrate: 'true' }} className={buttonClass('primary')}>Calibrate now, about {money(price)}</A>
          )}
          {queue.may_manage && (progress?.counts.conflicts ?? 0) > 0 && (
            <A to={`review/${queue.id}`} query={{ view: 'items', conflict: 'true' }} className={buttonClass()}>{plural(progress!.counts.conflicts, 'conflict')}</A>
          )}
          {undo && <Button onClick={undo}>Undo the last <kbd className="kbd">u</kbd></Button>}
          <A to="review" className="link text-sm">All queues</A>
        </div>
      </section>
      {progress && queue.criterion_id && progress.needed && <Section title="Labels that the judge still needs"><Tiers progress={progress} queue={queue} /></Section>}
    </div>
  )
}

function Nothing({ queue }: { queue: Queue }) {
  if (queue.fill?.error) return <>Filling it failed: {queue.fill.error}</>
  return <>Nothing matched what it was made from{queue.fill?.missing ? `, and ${plural(queue.fill.missing, 'named item')} ${queue.fill.missing === 1 ? 'is' : 'are'} not logged` : ''}. Add items in its settings, or make another queue.</>
}
