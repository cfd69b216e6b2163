import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/client'
import { useToast } from '../../app/Toasts'
import { count } from '../../format'
import { Button } from '../../ui/Button'
import { Confirm } from '../../ui/Dialog'
import { Snippet } from '../../ui/EmptyState'
import { TextField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { SkeletonLines, Time } from '../../ui/Values'
import type { Listed, Queue, Reviewer } from './api'

interface Assigned { items: number; people: { user_id: string; items: number }[] }

/** Who grades: reviewers by a link, and which items go to whom. */
export function People({ ws, queue }: { ws: string; queue: Queue }) {
  const queries = useQueryClient()
  const { tell } = useToast()
  const [email, setEmail] = useState('')
  const [taking, setTaking] = useState<Reviewer | null>(null)
  const key = ['queue', ws, queue.id, 'reviewers']
  const path = `/queues/${queue.id}/reviewers`
  const reviewers = useQuery({
    queryKey: key, queryFn: ({ signal }) => call<Listed<Reviewer>>(ws, 'GET', path, { query: { limit: 200 }, signal }),
  })
  const grant = useMutation({
    mutationFn: (who: string) => call<Reviewer>(ws, 'PUT', path, { body: { email: who } }),
    onSuccess: () => {
      setEmail('')
      void queries.invalidateQueries({ queryKey: key })
    },
  })
  const people = reviewers.data?.data ?? []
  return (
    <div className="grid items-start gap-x-4 lg:grid-cols-2">
      <div className="min-w-0">
        <Section title="Reviewers" aside="they see this queue, and nothing else of the workspace">
          <form className="flex items-end gap-2" onSubmit={(event) => {
            event.preventDefault()
            if (email.trim()) grant.mutate(email.trim())
          }}>
            <TextField className="min-w-0 flex-1" label="E-mail address" type="email" required autoComplete="off" value={email} onChange={(event) => setEmail(event.target.value)} />
            <Button type="submit" look="primary" busy={grant.isPending}>Invite by link</Button>
          </form>
          {grant.error && <div className="mt-2"><Refusal error={grant.error} /></div>}
          {grant.data && (
            <div className="mt-3 text-sm">
              {grant.data.url ? <><p>This link signs <strong>{grant.data.email}</strong> in once, and opens the queue at the first open item. It is shown once: send it now.</p>
                <Snippet text={grant.data.url} /></>
                : <p>{grant.data.email} may grade now. Send the link of the queue.</p>}
            </div>
          )}
          {reviewers.error && <Refusal error={reviewers.error} retry={() => void reviewers.refetch()} />}
          {reviewers.isPending && <SkeletonLines lines={2} />}
          <ul className="mt-3">
            {people.map((person) => (
              <li key={person.user_id} className="flex items-center gap-3 border-t border-line py-1.5 text-sm">
                <span className="min-w-0 flex-1 truncate">{person.email}</span>
                <span className="shrink-0 text-xs text-soft">{count(person.graded)} graded · since <Time value={person.created_at} relative /></span>
                <Button small look="danger" onClick={() => setTaking(person)}>Take away</Button>
              </li>
            ))}
            {reviewers.data && people.length === 0 && <li className="text-sm text-soft">Nobody yet. Owners and admins of the workspace grade without a grant.</li>}
          </ul>
        </Section>
      </div>
      <div className="min-w-0"><Assign ws={ws} queue={queue} people={people} /></div>
      <Confirm open={taking !== null} onClose={() => setTaking(null)} danger title="Take the grant away" action="Take away"
        text={<>{taking?.email} loses access to this queue at once. What was graded stays.</>}
        run={async () => {
          await call(ws, 'DELETE', `${path}/${taking!.user_id}`)
          await queries.invalidateQueries({ queryKey: key })
          tell(`${taking!.email} has no access any more`)
        }} />
    </div>
  )
}

function Assign({ ws, queue, people }: { ws: string; queue: Queue; people: Reviewer[] }) {
  const queries = useQueryClient()
  const [chosen, setChosen] = useState<string[]>([])
  const assign = useMutation({
    mutationFn: (user_ids: string[]) => call<Assigned>(ws, 'PUT', `/queues/${queue.id}/assignments`, { body: { user_ids } }),
    onSuccess: () => void queries.invalidateQueries({ queryKey: ['queue', ws, queue.id] }),
  })
  const name = (id: string) => people.find((person) => person.user_id === id)?.email ?? id
  return (
    <Section title="Assign" aside={`${count(queue.counts.open)} open items`}>
      <p className="text-sm text-soft">Open items are divided among the people that you choose, {queue.graders_per_item} for each item. An assigned item is offered to its people alone.</p>
      <fieldset className="mt-2 space-y-1">
        <legend className="only-read">People</legend>
        {people.map((person) => (
          <label key={person.user_id} className="flex items-center gap-2 text-sm">
            <input type="checkbox" checked={chosen.includes(person.user_id)} onChange={(event) => setChosen(
              event.target.checked ? [...chosen, person.user_id] : chosen.filter((id) => id !== person.user_id))} />
            {person.email}
          </label>
        ))}
        {people.length === 0 && <p className="text-sm text-soft">Invite a reviewer first.</p>}
      </fieldset>
      <div className="mt-3 flex flex-wrap gap-2">
        <Button disabled={chosen.length === 0} busy={assign.isPending} onClick={() => assign.mutate(chosen)}>Divide the open items</Button>
        <Button look="quiet" onClick={() => assign.mutate([])}>Offer all to everybody</Button>
      </div>
      {assign.data && <p role="status" className="mt-2 text-sm text-soft">{assign.data.people.length === 0
        ? `${count(assign.data.items)} items are offered to everybody.`
        : assign.data.people.map((one) => `${name(one.user_id)}: ${count(one.items)}`).join(', ')}</p>}
      {assign.error && <div className="mt-2"><Refusal error={assign.error} /></div>}
    </Section>
  )
}
