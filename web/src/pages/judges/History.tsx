import { useQuery } from '@tanstack/react-query'
import { data, v1 } from '../../api/client'
import { CurlButton } from '../../ui/Copy'
import { Section } from '../../ui/Page'
import { Person } from '../../ui/Person'
import { Refusal } from '../../ui/Refusal'
import { SkeletonLines, Time } from '../../ui/Values'
import { changes } from './changes'

/** Every change of a judge, before and after. */
export function History({ ws, judge }: { ws: string; judge: string }) {
  const list = useQuery({
    queryKey: ['judge history', ws, judge],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria/{id}/history', { params: { path: { id: judge }, query: { limit: 100 } }, signal })),
  })
  if (list.error) return <Refusal error={list.error} retry={() => void list.refetch()} />
  if (!list.data) return <SkeletonLines />
  return (
    <Section title="Changes" aside="from the audit trail" flush actions={<CurlButton call={{ path: `/v1/criteria/${judge}/history` }} />}>
      <ul>
        {list.data.data.map((entry) => (
          <li key={entry.id} className="border-b border-line px-3.5 py-2.5 text-sm last:border-b-0">
            <div className="flex flex-wrap items-baseline gap-x-3"><strong>{entry.action.replace(/^\w+\./, '').replaceAll('_', ' ')}</strong>
              <span className="text-xs text-soft">{entry.actor.user_id ? <Person id={entry.actor.user_id} /> : entry.actor.kind}</span><span className="ml-auto text-xs text-faint"><Time value={entry.at} /></span></div>
            <dl className="mt-1 space-y-1">
              {changes(entry.before, entry.after).map((change) => (
                <div key={change.name} className="grid gap-x-3 sm:grid-cols-[9rem_1fr_1fr]">
                  <dt className="text-xs text-soft">{change.name.replaceAll('_', ' ')}</dt>
                  <dd className="break-words whitespace-pre-wrap text-fail"><span className="only-read">before: </span>{change.before}</dd>
                  <dd className="break-words whitespace-pre-wrap text-pass"><span className="only-read">after: </span>{change.after}</dd>
                </div>
              ))}
            </dl>
          </li>
        ))}
      </ul>
    </Section>
  )
}
