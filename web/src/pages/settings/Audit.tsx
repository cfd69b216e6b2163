import { useQuery } from '@tanstack/react-query'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { actorText, changes } from '../../audit'
import { plural } from '../../format'
import { text, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Button } from '../../ui/Button'
import { Id } from '../../ui/Copy'
import { Drawer } from '../../ui/Dialog'
import { EmptyState } from '../../ui/EmptyState'
import { Field, SelectField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Facts, SkeletonLines, Time } from '../../ui/Values'
import { JsonView } from '../../ui/Viewer'
import { usePeople } from './people'
import type { AuditEntry, List } from './shapes'

const schema = { action: text(), actor: text(), subject: text(), entry: text(), cursor: text() }

/** Everything that was changed, by whom, before and after. */
export function Audit() {
  const ws = useWorkspaceId()
  const [state, set] = useQueryState(schema)
  const { may, why } = useAllowed()
  const list = useQuery({
    queryKey: ['audit', ws, state.action, state.actor, state.subject, state.cursor], enabled: may,
    queryFn: ({ signal }) => call<List<AuditEntry> & { next?: string }>(ws, 'GET', '/audit', {
      query: { action: state.action, actor: state.actor, before: state.cursor, limit: state.subject ? 1000 : 100 }, signal,
    }),
  })
  const people = usePeople()
  if (!may) return <EmptyState title="The audit trail" text={`${why}.`} />
  const read = list.data?.data ?? []
  const rows = state.subject ? read.filter((entry) => entry.subject === state.subject) : read
  const open = rows.find((entry) => entry.id === state.entry)
  const columns: Column<AuditEntry>[] = [
    { id: 'at', header: 'When', width: '150px', cell: (entry) => <Time value={entry.at} short /> },
    { id: 'action', header: 'Action', width: 'minmax(120px,1fr)', cell: (entry) => <code className="font-mono text-xs">{entry.action}</code>, card: 'title' },
    { id: 'subject', header: 'Subject', width: 'minmax(140px,1.4fr)', cell: (entry) => entry.subject },
    { id: 'actor', header: 'By', width: 'minmax(140px,1.4fr)', cell: (entry) => actorText(entry.actor, people) },
    {
      id: 'change', header: 'Change', width: 'minmax(160px,2fr)', card: 'none',
      cell: (entry) => changes(entry.before, entry.after).slice(0, 3).map((c) => c.name).join(', ') || <span className="text-faint">–</span>,
    },
  ]
  return (
    <Section title="Audit trail" flush aside="appended to, never changed; chained by hashes">
      <div className="flex flex-wrap items-end gap-3 border-b border-line px-3.5 py-2.5">
        {(['action', 'subject'] as const).map((name) => (
          <Field key={name} label={{ action: 'Action', subject: 'Subject' }[name]} className="min-w-0 flex-1 basis-36">
            {(props) => <input {...props} key={state[name]} className="control w-full" defaultValue={state[name]}
              placeholder={{ action: 'key.revoke, or key.', subject: 'a whole id or name' }[name]} spellCheck={false}
              onKeyDown={(event) => event.key === 'Enter' && set({ [name]: event.currentTarget.value.trim(), cursor: '' })}
              onBlur={(event) => event.target.value.trim() !== state[name] && set({ [name]: event.target.value.trim(), cursor: '' })} />}
          </Field>
        ))}
        <SelectField label="Person" className="min-w-0 flex-1 basis-36" value={state.actor} onChange={(actor) => set({ actor, cursor: '' })}
          options={[{ value: '', label: 'Anyone' }, ...[...people].map(([value, label]) => ({ value, label }))]} />
        {(state.action || state.actor || state.subject || state.cursor) && (
          <Button onClick={() => set({ action: '', actor: '', subject: '', cursor: '' })}>Clear</Button>
        )}
      </div>
      {state.subject && list.data && (
        <p role="status" className="border-b border-line px-3.5 py-2 text-xs text-soft">
          {plural(rows.length, 'entry', 'entries')} about <code className="font-mono">{state.subject}</code> among the {plural(read.length, 'entry', 'entries')} that were read
          {list.data.has_more ? '; there are older ones, which “Older” reads.' : ': all that fit the other filters.'}
        </p>
      )}
      {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
      {list.isPending && <div className="p-3"><SkeletonLines /></div>}
      {list.data && rows.length === 0 && !state.subject && <p className="px-3.5 py-4 text-sm text-soft">Nothing fits these filters.</p>}
      {rows.length > 0 && (
        <Table label="Audit trail" keys columns={columns} rows={rows} rowKey={(entry) => entry.id}
          onOpen={(entry) => set({ entry: entry.id }, { push: true })} />
      )}
      {list.data?.has_more && (
        <div className="p-2 text-center"><Button onClick={() => set({ cursor: read[read.length - 1]!.id }, { push: true })}>Older</Button></div>
      )}
      <Drawer open={Boolean(open)} onClose={() => set({ entry: '' })} title={open?.action ?? ''} wide>
        {open && <Entry of={open} by={actorText(open.actor, people)} />}
      </Drawer>
    </Section>
  )
}

function Entry({ of, by }: { of: AuditEntry; by: string }) {
  const list = changes(of.before, of.after)
  return (
    <div className="space-y-4">
      <Facts rows={[
        ['When', <Time value={of.at} />], ['By', by], ['Session', of.actor.session_id ? <Id value={of.actor.session_id} /> : '–'],
        ['Subject', <Id value={of.subject} />], ['Request', of.request_id ? <Id value={of.request_id} /> : '–'], ['Entry', <Id value={of.id} />],
      ]} />
      {list.length > 0 && (
        <table className="w-full table-fixed text-sm">
          <thead className="text-left text-xs text-soft"><tr><th className="py-1 font-medium">What</th><th className="font-medium">Before</th><th className="font-medium">After</th></tr></thead>
          <tbody>
            {list.map((change) => (
              <tr key={change.name} className="border-t border-line align-top">
                <td className="py-1 pr-2 break-words">{change.name}</td>
                <td className="py-1 pr-2 font-mono text-xs break-words text-fail">{change.before}</td>
                <td className="py-1 font-mono text-xs break-words text-pass">{change.after}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {of.before !== null && of.before !== undefined && <JsonView label="Before" value={of.before} />}
      {of.after !== null && of.after !== undefined && <JsonView label="After" value={of.after} />}
    </div>
  )
}
