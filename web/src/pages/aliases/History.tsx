import { useQuery } from '@tanstack/react-query'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { actorText, changes, type Actor } from '../../audit'
import { CurlButton } from '../../ui/Copy'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Time } from '../../ui/Values'
import { usePeople } from '../settings/people'

export function useHistory(name: string, enabled = true) {
  const ws = useWorkspaceId()
  return useQuery({
    queryKey: ['history', ws, name], enabled,
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/aliases/{name}/history', { params: { path: { name }, query: { limit: 100 } }, signal })),
  })
}

/** Every change of an alias, by whom, before and after. */
export function History({ name }: { name: string }) {
  const history = useHistory(name)
  const people = usePeople(history.data?.data.map((entry) => (entry.actor as Actor).user_id) ?? [])
  return (
    <Section title="History" flush aside="from the audit trail" actions={<CurlButton call={{ path: `/v1/aliases/${name}/history` }} />}>
      {history.error && <div className="p-3"><Refusal error={history.error} /></div>}
      <ol>
        {history.data?.data.map((entry) => (
          <li key={entry.id} className="border-b border-line px-3.5 py-2 text-sm last:border-0">
            <p className="flex flex-wrap gap-x-3 text-xs text-soft">
              <Time value={entry.at} /><span className="min-w-0 truncate">{entry.action} by {actorText(entry.actor as Actor, people)}</span>
            </p>
            <ul className="mt-0.5 flex flex-wrap gap-x-4">
              {changes(entry.before, entry.after).map((change) => (
                <li key={change.name} className="break-words"><span className="text-soft">{change.name.replaceAll('_', ' ')}: </span>
                  {change.before !== '–' && <><del className="text-fail no-underline">{change.before || '(empty)'}</del><span aria-label="becomes"> → </span></>}
                  <ins className="text-pass no-underline">{change.after || '(empty)'}</ins></li>
              ))}
            </ul>
          </li>
        ))}
      </ol>
    </Section>
  )
}
