import { afterEach, expect, test, vi } from 'vitest'
import { call, setSignedOut, v1, data, withQuery } from './client'
import { curl } from './curl'
import { ApiError } from './errors'

const answer = (status: number, body: unknown, headers: Record<string, string> = {}) =>
  vi.spyOn(globalThis, 'fetch').mockResolvedValue(new Response(JSON.stringify(body), {
    status, headers: { 'Content-Type': 'application/json', ...headers },
  }))

afterEach(() => void vi.restoreAllMocks())

test('a refusal has status, code, message and request id', async () => {
  answer(403, { error: { message: 'no', code: 'insufficient_permissions', type: 't', param: null } }, { 'X-Request-Id': 'req_1' })
  const error = await call('ws_1', 'POST', '/x').catch((e: ApiError) => e)
  expect(error).toMatchObject({ status: 403, code: 'insufficient_permissions', message: 'no', requestId: 'req_1' })
  expect((error as ApiError).remedy).toContain('owner or admin')
})

test('an answer without a session is told once, and a refused key is not', async () => {
  const out = vi.fn()
  setSignedOut(out)
  answer(401, { error: { message: 'sign in', code: 'not_signed_in' } })
  await call(null, 'GET', '/sessions').catch(() => {})
  expect(out).toHaveBeenCalledTimes(1)
  answer(401, { error: { message: 'wrong', code: 'wrong_password' } })
  await call(null, 'POST', '/session/password', { body: {} }).catch(() => {})
  expect(out).toHaveBeenCalledTimes(1)
})

test('a path of /v1 is called behind the cookie, in its workspace', async () => {
  const fetched = answer(200, { object: 'list', data: [] })
  await data(v1('ws_1').GET('/v1/logs' as never, { params: { query: { limit: 5 } } } as never) as never)
  expect(new URL((fetched.mock.calls[0]![0] as Request).url).pathname).toBe('/dashboard/v1/ws_1/logs')
})

test('a server that does not answer is an error with status 0', async () => {
  vi.spyOn(globalThis, 'fetch').mockRejectedValue(new TypeError('failed to fetch'))
  expect(await call(null, 'GET', '/session').catch((e: ApiError) => e.status)).toBe(0)
})

test('empty parameters are left out', () => {
  expect(withQuery('/logs', { model: '', limit: 5, tag: undefined, x: 'a b' })).toBe('/logs?limit=5&x=a+b')
})

test('curl survives quotes, and names the key by its variable', () => {
  const text = curl({ method: 'POST', path: '/v1/labels', body: { critique: "it's" } }, 'http://h')
  expect(text).toContain(`'http://h/v1/labels'`)
  expect(text).toContain('$SOVEREIGN_API_KEY')
  expect(text).toContain(`it'\\''s`)
})
