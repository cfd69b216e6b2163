import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState, type FormEvent } from 'react'
import { call } from '../../api/client'
import { sessionQuery, useSession } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { Badge } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { Confirm } from '../../ui/Dialog'
import { TextField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { SkeletonLines, Time } from '../../ui/Values'
import { agentText } from './agent'
import type { DashSession, List } from './shapes'

const ways = { link: 'a one-time link', password: 'a password', oidc: 'single sign-on' }

/** The reader's own sessions and password. */
export function Account() {
  const client = useQueryClient()
  const { tell, fail } = useToast()
  const [endingAll, setEndingAll] = useState(false)
  const list = useQuery({
    queryKey: ['sessions'], queryFn: ({ signal }) => call<List<DashSession>>(null, 'GET', '/sessions', { query: { limit: 100 }, signal }),
  })
  const read = () => client.invalidateQueries({ queryKey: ['sessions'] })
  const end = useMutation({
    mutationFn: (id: string) => call(null, 'DELETE', `/sessions/${id}`),
    onSuccess: async () => {
      await read()
      tell('That session has ended')
    },
    onError: fail,
  })
  const others = list.data?.data.filter((one) => !one.current) ?? []
  return (
    <>
      <Section title="Your sessions" flush aside="in every workspace" actions={
        <Button look="danger" disabled={others.length === 0} onClick={() => setEndingAll(true)}>End all others</Button>
      }>
        {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
        {list.isPending && <div className="p-3"><SkeletonLines /></div>}
        <ul>
          {list.data?.data.map((one) => (
            <li key={one.id} className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b border-line px-3.5 py-2 text-sm last:border-0">
              <span className="min-w-0 flex-1 basis-56">
                <span className="block truncate font-medium" title={one.user_agent}>{agentText(one.user_agent)}</span>
                <span className="block text-xs text-faint">{one.address} · by {ways[one.method] ?? one.method} · <Time value={one.created_at} relative /></span>
              </span>
              <span className="text-xs text-soft">seen <Time value={one.last_seen_at} relative /></span>
              {one.current ? <Badge tone="accent">this one</Badge>
                : <Button small look="danger" busy={end.isPending && end.variables === one.id} onClick={() => end.mutate(one.id)}>End</Button>}
            </li>
          ))}
        </ul>
        <p className="border-t border-line px-3.5 py-2 text-xs text-faint">A session ends after 14 days without use, and after 30 days in any case.</p>
      </Section>
      <Password />
      <Confirm open={endingAll} onClose={() => setEndingAll(false)} danger action="End them" title="End all other sessions?"
        text="Every other browser in which you are signed in has to sign in again." run={async () => {
          await call(null, 'DELETE', '/sessions')
          await read()
          tell('All other sessions have ended')
        }} />
    </>
  )
}

const least = 12

function Password() {
  const session = useSession().data as (ReturnType<typeof useSession>['data'] & { has_password?: boolean }) | undefined
  const client = useQueryClient()
  const { tell } = useToast()
  const [current, setCurrent] = useState('')
  const [next, setNext] = useState('')
  const save = useMutation({
    mutationFn: () => call(null, 'PUT', '/password', { body: { ...(current && { current }), new: next } }),
    onSuccess: async () => {
      setCurrent('')
      setNext('')
      await Promise.all([client.invalidateQueries({ queryKey: sessionQuery.queryKey }), client.invalidateQueries({ queryKey: ['sessions'] })])
      tell('The password is set', { text: 'Your other sessions have ended.' })
    },
  })
  if (!session?.sign_in.password) return null
  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (next.length >= least) save.mutate()
  }
  return (
    <Section title="Password" aside={session.has_password ? undefined : 'none yet: you sign in by links'}>
      <form className="max-w-sm space-y-3" onSubmit={submit}>
        <input type="hidden" name="username" autoComplete="username" value={session.email} readOnly />
        {session.has_password && (
          <TextField label="Current password" type="password" autoComplete="current-password" value={current}
            hint="Not needed in the first 15 minutes after a one-time link" onChange={(event) => setCurrent(event.target.value)} />
        )}
        <TextField label="New password" type="password" autoComplete="new-password" value={next} onChange={(event) => setNext(event.target.value)}
          hint={`At least ${least} characters; a few words are better than signs`}
          error={next !== '' && next.length < least ? `${least - next.length} characters more` : undefined} />
        {save.error && <Refusal error={save.error} />}
        <Button type="submit" disabled={next.length < least} busy={save.isPending}>{session.has_password ? 'Change it' : 'Set a password'}</Button>
      </form>
    </Section>
  )
}
