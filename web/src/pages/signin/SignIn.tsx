import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useRouter } from '@tanstack/react-router'
import { LogInIcon, ShieldAlertIcon } from 'lucide-react'
import { useEffect, useRef, useState, type FormEvent } from 'react'
import { call } from '../../api/client'
import { sessionQuery, useSession, type Session } from '../../api/session'
import { keepReturn, safeReturn } from '../../app/return'
import { text, useQueryState } from '../../query'
import { Button } from '../../ui/Button'
import { Snippet } from '../../ui/EmptyState'
import { TextField } from '../../ui/Field'
import { Refusal } from '../../ui/Refusal'
import { SkeletonLines } from '../../ui/Values'

const schema = { return: text() }

const isPlain = () => location.protocol === 'http:' && !['localhost', '127.0.0.1', '[::1]'].includes(location.hostname)

/** Signing in: by a one-time link, whose token is in the fragment and never leaves the browser but by POST; by password; by OIDC. */
export default function SignIn() {
  const [state] = useQueryState(schema)
  const { history: visited } = useRouter()
  const client = useQueryClient()
  const session = useSession()
  const [email, setEmail] = useState('')
  const [password, setPassword] = useState('')

  // The answer to signing in is the new session. A query still in flight was sent without its cookie, and would undo it.
  const enter = async (session: Session) => {
    await client.cancelQueries()
    client.removeQueries({ predicate: (query) => query.queryKey[0] !== 'session' })
    client.setQueryData(sessionQuery.queryKey, session)
    visited.replace(`/dashboard${safeReturn(state.return)}`)
  }
  const byLink = useMutation({
    mutationFn: (token: string) => call<Session>(null, 'POST', '/session/link', { body: { token } }), onSuccess: enter,
  })
  const byPassword = useMutation({
    mutationFn: () => call<Session>(null, 'POST', '/session/password', { body: { email, password } }), onSuccess: enter,
  })

  const byOIDC = useMutation({
    mutationFn: () => call<{ url: string }>(null, 'POST', '/session/oidc'),
    onSuccess: ({ url }) => {
      keepReturn(state.return)
      location.assign(url)
    },
  })

  const spent = useRef(false)
  const [refused] = useState(() => new URLSearchParams(location.hash.slice(1)).get('refused') ?? '')
  useEffect(() => {
    document.title = 'Sign in · Sovereign'
    const token = /^#link=([\w-]+)$/.exec(location.hash)?.[1]
    if (location.hash) history.replaceState(history.state, '', location.pathname + location.search) // the token stays in no history
    if (!token || spent.current) return
    spent.current = true
    byLink.mutate(token)
  }, [byLink])

  const signedIn = session.data?.signed_in && !byLink.isPending && !byLink.isError
  useEffect(() => {
    if (signedIn && !spent.current) visited.replace(`/dashboard${safeReturn(state.return)}`)
  }, [signedIn, state.return, visited])

  const submit = (event: FormEvent) => {
    event.preventDefault()
    byPassword.mutate()
  }
  const ways = session.data?.sign_in
  return (
    <main className="mx-auto flex min-h-dvh max-w-sm flex-col justify-center gap-4 p-5">
      <header>
        <h1 className="text-xl font-semibold">Sovereign</h1>
        <p className="text-sm text-soft">Sign in to the dashboard.</p>
      </header>
      {(isPlain() || ways?.secure === false) && (
        <p role="alert" className="flex gap-2 rounded-md border border-warn/40 bg-warn-ground p-3 text-sm">
          <ShieldAlertIcon size={16} className="mt-0.5 shrink-0 text-warn" aria-hidden />
          <span>This page came over plain HTTP, on which anyone on the way can read what you type. The server refuses to sign you
            in here. Use https, or open it on the server itself by 127.0.0.1.</span>
        </p>
      )}
      {refused && <Refusal title="You are not signed in" error={new Error(refused)} />}
      {byLink.isPending && <SkeletonLines lines={2} />}
      {byLink.error && <Refusal title="The link did not work" error={byLink.error} remedy="" />}
      {session.error ? <Refusal error={session.error} retry={() => void session.refetch()} /> : !ways ? <SkeletonLines /> : <>
        {ways.oidc && (
          <Button look="primary" icon={<LogInIcon size={14} />} busy={byOIDC.isPending} onClick={() => byOIDC.mutate()}>Continue with {ways.oidc.name}</Button>
        )}
        {byOIDC.error && <Refusal error={byOIDC.error} remedy="" />}
        {ways.password && (
          <form onSubmit={submit} className="card space-y-3 p-4">
            <TextField label="E-mail" type="email" name="email" autoComplete="username" required value={email}
              onChange={(event) => setEmail(event.target.value)} />
            <TextField label="Password" type="password" name="password" autoComplete="current-password" required value={password}
              onChange={(event) => setPassword(event.target.value)} />
            {byPassword.error && <Refusal error={byPassword.error} remedy="" />}
            <Button type="submit" look={ways.oidc ? 'plain' : 'primary'} className="w-full" busy={byPassword.isPending}>Sign in</Button>
          </form>
        )}
        <details className="text-sm text-soft" open={!ways.password && !ways.oidc}>
          <summary>Sign in by a one-time link</summary>
          <p className="mt-2">Whoever runs the server makes a link, which works once and for 15 minutes:</p>
          <Snippet text="sovereign admin dashboard link --email you@example.com" />
        </details>
      </>}
      <p className="text-xs text-faint">
        <a className="link" href="/docs">API documentation</a>{session.data?.release && ` · release ${session.data.release}`}
      </p>
    </main>
  )
}
