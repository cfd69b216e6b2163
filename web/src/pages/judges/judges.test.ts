import { expect, test } from 'vitest'
import type { Certificate } from './api'
import { lacks, needSentence, rank } from './ladder'
import { differing, fromBase64Url, sameJson, verify, type Jwk } from './verify'

const block = (change: object) => ({
  n: 200, failed: 0, holdout_active: true, matrix: { tp: 98, fn: 2, tn: 97, fp: 3 },
  se: 0.98, sp: 0.97, se_ci: [0.93, 0.998] as number[], sp_ci: [0.915, 0.994] as number[], ...change,
})

test('a judge lacks nothing for a tier whose rule it meets', () => {
  expect(lacks('certified', block({}))).toEqual([])
  expect(lacks('certified', block({ sp_ci: [0.88, 0.99] }))).toEqual(['specificity’s lower bound 0.880'])
  expect(lacks('calibrated', block({ se: 0.85 }))).toEqual(['sensitivity 0.850'])
  expect(lacks('calibrated', block({ matrix: { tp: 35, fn: 5, tn: 97, fp: 3 } }))).toEqual(['10 more pass in the report half'])
  expect(lacks('measured', block({ holdout_active: false }))[0]).toContain('under 30 of a class')
  expect(lacks('measured', block({ failed: 30 }))).toEqual(['30 of 230 answers were no verdicts'])
  expect(lacks('provisional', null)).toEqual(['calibrate it'])
})

test('tiers are ordered', () => {
  expect(rank('none')).toBe(0)
  expect(rank('certified')).toBe(4)
})

test('what is still needed is said, and nothing when it is enough', () => {
  expect(needSentence({ pass: 0, fail: 0 })).toBe('30 pass and 30 fail still needed')
  expect(needSentence({ pass: 40, fail: 12 })).toBe('18 fail still needed')
  expect(needSentence({ pass: 30, fail: 30 })).toBe('')
})

test('JSON is the same in any order, and no other way', () => {
  expect(sameJson({ a: [1, { b: null }], c: 'x' }, { c: 'x', a: [1, { b: null }] })).toBe(true)
  expect(sameJson({ a: 1 }, { a: 1, b: undefined })).toBe(false)
  expect(sameJson([1], { 0: 1 })).toBe(false)
  expect(sameJson(null, {})).toBe(false)
})

const toBase64Url = (bytes: Uint8Array | string) =>
  Buffer.from(bytes as never).toString('base64url')

async function signed(change: (c: Record<string, unknown>) => void = () => {}) {
  const pair = (await crypto.subtle.generateKey({ name: 'Ed25519' }, true, ['sign', 'verify'])) as CryptoKeyPair
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', pair.publicKey))
  const content = { id: 'cert_1', se: 0.95, se_ci: [0.9, 0.99], matrix: { tp: 1, fp: 0, tn: 1, fn: 0 } }
  const body = `${toBase64Url(JSON.stringify({ alg: 'EdDSA', kid: 'k1' }))}.${toBase64Url(JSON.stringify(content))}`
  const signature = new Uint8Array(await crypto.subtle.sign({ name: 'Ed25519' }, pair.privateKey, new TextEncoder().encode(body)))
  const certificate: Record<string, unknown> = {
    ...content, voided: false, voided_at: null, voided_reason: null,
    signature: { alg: 'EdDSA', key_id: 'k1', jws: `${body}.${toBase64Url(signature)}` },
  }
  change(certificate)
  const keys: Jwk[] = [{ kty: 'OKP', crv: 'Ed25519', kid: 'k1', x: toBase64Url(raw) }]
  return { certificate: certificate as unknown as Certificate, keys }
}

test('a signed certificate verifies, voided or not', async () => {
  const one = await signed()
  expect(await verify(one.certificate, one.keys)).toEqual({ kind: 'valid', keyId: 'k1', voided: false })
  const two = await signed((c) => Object.assign(c, { voided: true, voided_reason: 'a label was corrected' }))
  expect(await verify(two.certificate, two.keys)).toMatchObject({ kind: 'valid', voided: true })
})

test('a changed number, an added member, another key and a broken signature are found', async () => {
  const changed = await signed((c) => Object.assign(c, { se: 0.99 }))
  expect(await verify(changed.certificate, changed.keys)).toMatchObject({ kind: 'invalid', why: expect.stringContaining('se') })
  const added = await signed((c) => Object.assign(c, { trust: 'certified' }))
  expect(await verify(added.certificate, added.keys)).toMatchObject({ kind: 'invalid' })
  const good = await signed()
  expect(await verify(good.certificate, [])).toMatchObject({ kind: 'invalid', why: expect.stringContaining('k1') })
  expect(await verify(good.certificate, (await signed()).keys)).toMatchObject({ kind: 'invalid' })
  const cut = await signed((c) => Object.assign(c, { signature: { alg: 'EdDSA', key_id: 'k1', jws: 'a.b' } }))
  expect(await verify(cut.certificate, cut.keys)).toMatchObject({ kind: 'invalid' })
})

test('a browser without Ed25519 says so, and does not say invalid', async () => {
  const { certificate, keys } = await signed()
  const none = { importKey: () => Promise.reject(new DOMException('no', 'NotSupportedError')) } as unknown as SubtleCrypto
  expect((await verify(certificate, keys, none)).kind).toBe('unsupported')
})

test('the members that differ are named', () => {
  expect(differing({ a: 1, b: 2, signature: {}, voided: true }, { a: 1, b: 3, c: 4 })).toEqual(['b', 'c'])
  expect([...fromBase64Url('_-8')]).toEqual([255, 239])
})
