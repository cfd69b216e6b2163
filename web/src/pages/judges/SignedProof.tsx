import { useMutation } from '@tanstack/react-query'
import { DownloadIcon, ShieldAlertIcon, ShieldCheckIcon, ShieldQuestionIcon } from 'lucide-react'
import type { ReactNode } from 'react'
import { curl } from '../../api/curl'
import { announce } from '../../app/announce'
import { useKeys } from '../../keys'
import { Button, buttonClass } from '../../ui/Button'
import { CopyButton } from '../../ui/Copy'
import { Snippet } from '../../ui/EmptyState'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { readKeys, verify, type Outcome, type Signed } from './verify'

interface Props {
  of: Signed & { id: string }
  /** What it is: Certificate, Model version. */
  noun: string
  /** Where the API has it. */
  path: string
  /** The page, for members of the workspace. */
  link: string
  /** What it says of itself. */
  children: ReactNode
}

/** The proof of something signed: verification in this browser, and what others need to verify it elsewhere. */
export function SignedProof({ of, noun, path, link, children }: Props) {
  const check = useMutation({
    mutationFn: async (): Promise<Outcome> => verify(of, await readKeys()),
    onSuccess: (outcome) => announce(outcome.kind === 'valid' ? 'The signature is valid' : outcome.why),
  })
  useKeys(noun, [{ keys: 'v', label: 'Verify the signature', run: () => check.mutate() }])
  const fetched = [`${curl({ path })} > ${of.id}.json`, `curl -sS '${location.origin}/.well-known/jwks.json' > jwks.json`].join('\n')
  return (
    <Section title="Proof">
      <div className="flex flex-wrap gap-2">
        <Button look="primary" icon={<ShieldCheckIcon size={14} />} busy={check.isPending} onClick={() => check.mutate()}>Verify <kbd className="kbd">v</kbd></Button>
        <CopyButton small={false} label="Link for members" what="the link for members of the workspace" text={link} />
      </div>
      <div className="mt-2" aria-live="polite">
        {check.error && <Refusal error={check.error} />}
        {check.data && <OutcomeLine outcome={check.data} />}
      </div>
      <div className="mt-3">{children}</div>
      <h3 className="mt-4 text-sm font-semibold">Prove it to somebody else</h3>
      <p className="mt-1 text-sm text-soft">They need no account and no connection. Send both files:</p>
      <div className="mt-2 flex flex-wrap gap-2">
        <Button icon={<DownloadIcon size={14} />} onClick={() => save(`${of.id}.json`, JSON.stringify(of, null, 2), 'application/json')}>{noun}</Button>
        <a className={buttonClass()} href="/.well-known/jwks.json" download="jwks.json"><DownloadIcon size={14} aria-hidden /> Public keys</a>
      </div>
      <p className="mt-3 text-sm text-soft">In the folder of both they run:</p>
      <Snippet text={`sovereign verify ${of.id}.json --jwks jwks.json`} />
      <p className="mt-2 text-xs text-soft">It says “valid, signed by” the key above, or fails: one changed digit is enough. Whoever doubts you takes the keys from{' '}
        <code className="font-mono break-all">{location.origin}/.well-known/jwks.json</code> themselves.</p>
      <details className="mt-2 text-sm"><summary className="text-soft">By API, or without Sovereign’s program</summary>
        <Snippet text={fetched} />
        <p className="mt-2 text-xs text-soft">The signature alone is a compact JWS (EdDSA), which every JOSE library verifies:{' '}
          <button type="button" className="link" onClick={() => save(`${of.id}.jws`, of.signature.jws, 'application/jose')}>download {of.id}.jws</button>.</p>
      </details>
    </Section>
  )
}

function OutcomeLine({ outcome }: { outcome: Outcome }) {
  if (outcome.kind === 'valid') {
    return <p className="flex gap-2 rounded-md bg-pass-ground px-3 py-2 text-sm"><ShieldCheckIcon size={16} className="mt-0.5 shrink-0 text-pass" aria-hidden />
      <span>Valid: every number shown is what key <code className="font-mono text-xs">{outcome.keyId}</code> signed{outcome.voided && ', and it was voided later'}. The key is this server’s own word; compare it with one that you got elsewhere.</span></p>
  }
  const [Icon, look] = outcome.kind === 'invalid' ? [ShieldAlertIcon, 'bg-fail-ground'] : [ShieldQuestionIcon, 'bg-warn-ground']
  return <p className={`flex gap-2 rounded-md px-3 py-2 text-sm ${look}`}><Icon size={16} className="mt-0.5 shrink-0" aria-hidden /><span>{outcome.kind === 'invalid' && <strong>Not valid. </strong>}{outcome.why}</span></p>
}

function save(name: string, content: string, type: string) {
  const url = URL.createObjectURL(new Blob([content], { type }))
  const a = document.createElement('a')
  a.href = url
  a.download = name
  a.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}
