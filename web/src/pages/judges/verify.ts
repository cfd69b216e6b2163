// Verifies a certificate, or a trained model, in the browser: the signature by the published keys, then that what is shown is what was signed.
// A key of the server that shows the page proves no more than the server's word; `sovereign verify` proves it elsewhere.

/** What carries a signature of the server: a certificate, a trained model. */
export interface Signed { signature: { jws: string; key_id: string }; voided?: boolean }

export interface Jwk { kty: string; crv?: string; kid?: string; x?: string }

export type Outcome =
  | { kind: 'valid'; keyId: string; voided: boolean }
  | { kind: 'invalid'; why: string }
  | { kind: 'unsupported'; why: string }

const decoder = new TextDecoder('utf-8', { fatal: true })

export function fromBase64Url(text: string): Uint8Array<ArrayBuffer> {
  if (!/^[A-Za-z0-9_-]*$/.test(text)) throw new Error('not base64url')
  const plain = atob(text.replaceAll('-', '+').replaceAll('_', '/'))
  const bytes = new Uint8Array(new ArrayBuffer(plain.length))
  for (let i = 0; i < plain.length; i++) bytes[i] = plain.charCodeAt(i)
  return bytes
}

/** What is signed of a document: all of it, without the signature, adopted_at, and the members that begin with voided. */
export function signedPart(certificate: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(certificate).filter(([name]) => name !== 'signature' && name !== 'adopted_at' && !name.startsWith('voided')))
}

/** Whether two JSON values are the same, whatever the order of their members. */
export function sameJson(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((one, i) => sameJson(one, b[i]))
  }
  if (typeof a === 'object' && a !== null && typeof b === 'object' && b !== null) {
    const [x, y] = [new Map(Object.entries(a)), new Map(Object.entries(b))]
    return x.size === y.size && [...x].every(([name, value]) => y.has(name) && sameJson(value, y.get(name)))
  }
  return a === b
}

/** The names of the members that differ from what was signed. */
export function differing(certificate: Record<string, unknown>, signed: Record<string, unknown>): string[] {
  const shown = signedPart(certificate)
  return [...new Set([...Object.keys(shown), ...Object.keys(signed)])].filter((name) => !sameJson(shown[name], signed[name])).sort()
}

export async function verify(certificate: Signed, keys: Jwk[], subtle: SubtleCrypto | undefined = globalThis.crypto?.subtle): Promise<Outcome> {
  if (!subtle) return { kind: 'unsupported', why: 'This browser offers no cryptography on this page: it needs HTTPS, or the server’s own machine.' }
  const parts = certificate.signature.jws.split('.')
  if (parts.length !== 3) return { kind: 'invalid', why: 'The signature is no compact JWS.' }
  const [head, payload, signature] = parts as [string, string, string]
  let header: { alg?: string; kid?: string }
  let signed: Record<string, unknown>
  try {
    header = JSON.parse(decoder.decode(fromBase64Url(head)))
    signed = JSON.parse(decoder.decode(fromBase64Url(payload)))
  } catch {
    return { kind: 'invalid', why: 'The signature cannot be read.' }
  }
  if (header.alg !== 'EdDSA') return { kind: 'invalid', why: `The signature names the algorithm ${String(header.alg)}, not EdDSA.` }
  const keyId = header.kid ?? certificate.signature.key_id
  const jwk = keys.find((key) => key.kid === keyId && key.kty === 'OKP' && key.crv === 'Ed25519' && key.x)
  if (!jwk) return { kind: 'invalid', why: `The server publishes no key ${keyId}.` }
  let holds: boolean
  try {
    const key = await subtle.importKey('raw', fromBase64Url(jwk.x!), { name: 'Ed25519' }, false, ['verify'])
    holds = await subtle.verify({ name: 'Ed25519' }, key, fromBase64Url(signature), new TextEncoder().encode(`${head}.${payload}`))
  } catch {
    return { kind: 'unsupported', why: 'This browser does not know Ed25519. Verify with the command below.' }
  }
  if (!holds) return { kind: 'invalid', why: 'The signature does not match.' }
  const other = differing(certificate as unknown as Record<string, unknown>, signed)
  if (other.length > 0) return { kind: 'invalid', why: `What is shown is not what was signed: ${other.join(', ')}.` }
  return { kind: 'valid', keyId, voided: Boolean(certificate.voided) }
}

export async function readKeys(signal?: AbortSignal): Promise<Jwk[]> {
  const response = await fetch('/.well-known/jwks.json', { signal })
  if (!response.ok) throw new Error(`The server's keys cannot be read: ${response.status}`)
  const body = (await response.json()) as { keys?: Jwk[] }
  return body.keys ?? []
}

/** A text’s SHA-256 in hex: what a certificate says of its rubric. Null where the browser offers none. */
export async function sha256(text: string): Promise<string | null> {
  const subtle = globalThis.crypto?.subtle
  if (!subtle) return null
  const sum = new Uint8Array(await subtle.digest('SHA-256', new TextEncoder().encode(text)))
  return [...sum].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}
