import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { UserPlusIcon } from 'lucide-react'
import { useState } from 'react'
import { call } from '../../api/client'
import { sessionQuery, useSession, useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { ReadOnly, useAllowed } from '../../ui/Allowed'
import { Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { Confirm, Dialog } from '../../ui/Dialog'
import { Select, SelectField, TextField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Secret } from '../../ui/Secret'
import { SkeletonLines, Time } from '../../ui/Values'
import { mayAssign, mayTouch } from './roles'
import type { Invitation, List, Member, Role } from './shapes'

export function Team() {
  const ws = useWorkspace()
  const { may, why } = useAllowed()
  const me = useSession().data?.user_id
  const [inviting, setInviting] = useState(false)
  const [invited, setInvited] = useState<Invitation>()
  const [removing, setRemoving] = useState<Member>()
  const client = useQueryClient()
  const { tell, fail } = useToast()
  const members = useQuery({
    queryKey: ['members', ws.id],
    queryFn: ({ signal }) => call<List<Member>>(ws.id, 'GET', '/members', { query: { limit: 500 }, signal }),
  })
  const read = () => Promise.all([
    client.invalidateQueries({ queryKey: ['members', ws.id] }), client.invalidateQueries({ queryKey: sessionQuery.queryKey }),
  ])
  const setRole = useMutation({
    mutationFn: ({ member, role }: { member: Member; role: Role }) =>
      call(ws.id, 'PATCH', `/members/${member.user_id}`, { body: { role } }),
    onSuccess: async (_, { member, role }) => {
      await read()
      tell(`${member.email} is ${role} now`, {
        text: 'In force at once, in every open page of theirs.',
        undo: async () => {
          await call(ws.id, 'PATCH', `/members/${member.user_id}`, { body: { role: member.role } })
          await read()
        },
      })
    },
    onError: fail,
  })
  return (
    <>
      <Section title="Members" aside={members.data && String(members.data.data.length)} flush actions={
        <Button look="primary" icon={<UserPlusIcon size={14} />} disabled={!may} title={why} onClick={() => setInviting(true)}>Invite</Button>
      }>
        <div className="px-3.5 pt-3 empty:hidden"><ReadOnly /></div>
        {members.error && <div className="p-3"><Refusal error={members.error} retry={() => void members.refetch()} /></div>}
        {members.isPending && <div className="p-3"><SkeletonLines /></div>}
        <ul>
          {members.data?.data.map((member) => {
            const mine = member.user_id === me
            const touch = mayTouch(ws.role, member.role)
            return (
              <li key={member.user_id} className="flex flex-wrap items-center gap-x-3 gap-y-1 border-t border-line px-3.5 py-2 text-sm">
                <span className="min-w-0 flex-1 basis-48">
                  <span className="block truncate font-medium">{member.email}{mine && <span className="font-normal text-faint"> · you</span>}</span>
                  <span className="block text-xs text-faint">since <Time value={member.created_at} relative /></span>
                </span>
                {touch ? (
                  <Select aria-label={`Role of ${member.email}`} value={member.role} disabled={setRole.isPending}
                    options={mayAssign(ws.role)} onChange={(role) => setRole.mutate({ member, role: role as Role })} />
                ) : <Status value={member.role} />}
                <Button small look="danger" disabled={!touch && !mine} title={touch || mine ? undefined : 'Only an owner may remove this person'}
                  onClick={() => setRemoving(member)}>{mine ? 'Leave' : 'Remove'}</Button>
              </li>
            )
          })}
        </ul>
        <p className="border-t border-line px-3.5 py-2 text-xs text-faint">
          Members use models and read. Admins also manage keys, settings, judges, aliases and money. Owners also manage owners. People
          who only grade get a queue of their own in Review, and nothing else.
        </p>
      </Section>
      {may && <Invitations />}
      {inviting && <Invite onClose={() => setInviting(false)} onMade={(made) => {
        setInviting(false)
        setInvited(made)
      }} />}
      {invited?.url && (
        <Secret open onClose={() => setInvited(undefined)} title={`Invitation for ${invited.email}`} secret={invited.url}
          text="Send this link yourself: the server sends no mail. It works once, is shown now and never again, and signs in whoever opens it as this person." />
      )}
      <Confirm open={Boolean(removing)} onClose={() => setRemoving(undefined)} danger action={removing?.user_id === me ? 'Leave' : 'Remove'}
        title={removing?.user_id === me ? 'Leave this workspace?' : `Remove ${removing?.email}?`}
        text="Their keys are refused and their open pages lose access at once. What they made stays. They can be invited again."
        run={async () => {
          await call(ws.id, 'DELETE', `/members/${removing!.user_id}`)
          await read()
          tell(`${removing!.email} is no longer a member`)
        }} />
    </>
  )
}

function Invitations() {
  const ws = useWorkspace()
  const client = useQueryClient()
  const { tell, fail } = useToast()
  const list = useQuery({
    queryKey: ['invitations', ws.id],
    queryFn: ({ signal }) => call<List<Invitation>>(ws.id, 'GET', '/invitations', { signal }),
  })
  const withdraw = useMutation({
    mutationFn: (one: Invitation) => call(ws.id, 'DELETE', `/invitations/${one.id}`),
    onSuccess: async (_, one) => {
      await client.invalidateQueries({ queryKey: ['invitations', ws.id] })
      tell(`The link of ${one.email} no longer works`)
    },
    onError: fail,
  })
  if (!list.error && !list.data?.data.length) return null
  return (
    <Section title="Open invitations" flush>
      {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
      <ul>
        {list.data?.data.map((one) => (
          <li key={one.id} className="flex flex-wrap items-center gap-3 border-b border-line px-3.5 py-2 text-sm last:border-0">
            <span className="min-w-0 flex-1 basis-48 truncate">{one.email}</span>
            <Status value={one.role} />
            <span className="text-xs text-faint">ends <Time value={one.expires_at} relative /></span>
            <Button small look="danger" busy={withdraw.isPending && withdraw.variables?.id === one.id} onClick={() => withdraw.mutate(one)}>Withdraw</Button>
          </li>
        ))}
      </ul>
    </Section>
  )
}

function Invite({ onClose, onMade }: { onClose: () => void; onMade: (made: Invitation) => void }) {
  const ws = useWorkspace()
  const client = useQueryClient()
  const [email, setEmail] = useState('')
  const [role, setRole] = useState<Role>('member')
  const invite = useMutation({
    mutationFn: () => call<Invitation>(ws.id, 'POST', '/invitations', { body: { email: email.trim(), role } }),
    onSuccess: (made) => {
      void client.invalidateQueries({ queryKey: ['invitations', ws.id] })
      onMade(made)
    },
  })
  const ready = /^\S+@\S+$/.test(email.trim())
  return (
    <Dialog open onClose={onClose} title="Invite a person" text="You get a link, and send it yourself." footer={<>
      <Button onClick={onClose}>Cancel</Button>
      <Button look="primary" disabled={!ready} busy={invite.isPending} onClick={() => invite.mutate()}>Make the link</Button>
    </>}>
      <form className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        if (ready) invite.mutate()
      }}>
        <TextField label="E-mail" type="email" autoFocus value={email} onChange={(event) => setEmail(event.target.value)} />
        <SelectField label="Role" value={role} onChange={(value) => setRole(value as Role)} options={mayAssign(ws.role)} />
        {invite.error && <Refusal error={invite.error} />}
        <button type="submit" hidden />
      </form>
    </Dialog>
  )
}
