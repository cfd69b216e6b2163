// The one way to the server. Calls carry the session's cookie; every refusal is an ApiError.
import createClient, { type Client } from 'openapi-fetch'
import type { paths as DashboardPaths } from './dashboard'
import { ApiError, refusal } from './errors'
import type { paths as V1Paths } from './v1'

/** Called when the session has ended. */
let onSignedOut: () => void = () => {}
export const setSignedOut = (run: () => void) => void (onSignedOut = run)

async function send(request: Request): Promise<Response> {
  let response: Response
  try {
    response = await fetch(request)
  } catch (error) {
    if (request.signal.aborted) throw error
    throw new ApiError(0, 'no_answer', 'The server does not answer.')
  }
  if (response.status === 401 && response.headers.get('Content-Type')?.includes('json')) {
    const body = await response.clone().json().catch(() => null)
    if (body?.error?.code === 'not_signed_in') onSignedOut()
  }
  return response
}

type V1Client = Client<V1Paths>
const clients = new Map<string, V1Client>()

/** The documented path /v1/x is /dashboard/v1/{workspace}/x here. */
class BehindCookie extends Request {
  constructor(input: RequestInfo | URL, init?: RequestInit) {
    super(typeof input === 'string' ? input.replace(/^(\/dashboard\/v1\/[^/]+)\/v1\//, '$1/') : input, init)
  }
}

/** The public API of a workspace, as /v1 documents it, behind the cookie. */
export function v1(workspace: string): V1Client {
  let made = clients.get(workspace)
  if (!made) {
    made = createClient<V1Paths>({
      baseUrl: `/dashboard/v1/${encodeURIComponent(workspace)}`,
      fetch: send,
      Request: BehindCookie,
    })
    clients.set(workspace, made)
  }
  return made
}

/** The dashboard's own API. Its paths are the browser's: /dashboard/api/…. */
export const dash: Client<DashboardPaths> = createClient<DashboardPaths>({ baseUrl: '', fetch: send })

/** The answer's data; a refusal is thrown. */
export async function data<T>(
  call: Promise<{ data?: T; error?: unknown; response: Response }>,
): Promise<NonNullable<T>> {
  const { data: got, error, response } = await call
  if (!response.ok) throw refusal(response, error)
  return (got ?? null) as NonNullable<T>
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
export type Query = Record<string, string | number | boolean | undefined>

/** The path with its query; undefined and empty values are left out. */
export function withQuery(path: string, query: Query = {}): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== '')
  return pairs.length ? `${path}?${new URLSearchParams(pairs.map(([k, v]) => [k, String(v)]))}` : path
}

/**
 * Calls a route that the generated types do not have. `path` is below /dashboard/api; with a workspace it is that
 * workspace's: call(ws, 'GET', '/home') is /dashboard/api/w/{ws}/home.
 */
export async function call<T>(
  workspace: string | null, method: Method, path: string,
  options: { query?: Query; body?: unknown; signal?: AbortSignal; idempotencyKey?: string } = {},
): Promise<T> {
  const base = workspace === null ? '/dashboard/api' : `/dashboard/api/w/${encodeURIComponent(workspace)}`
  const headers: Record<string, string> = { Accept: 'application/json' }
  if (options.body !== undefined) headers['Content-Type'] = 'application/json'
  if (options.idempotencyKey) headers['Idempotency-Key'] = options.idempotencyKey
  const response = await send(new Request(new URL(withQuery(base + path, options.query), location.origin), {
    method, headers, signal: options.signal,
    body: options.body === undefined ? undefined : JSON.stringify(options.body),
  }))
  const body = await response.json().catch(() => null)
  if (!response.ok) throw refusal(response, body)
  return body as T
}

/** The address of a download behind the cookie. */
export const download = (workspace: string, path: string, query?: Query): string =>
  withQuery(`/dashboard/v1/${encodeURIComponent(workspace)}${path}`, query)

/** Sends a form with a file, as the public API takes it. `path` is below /v1. */
export async function upload<T>(workspace: string, path: string, form: FormData, signal?: AbortSignal): Promise<T> {
  const response = await send(new Request(new URL(download(workspace, path), location.origin), { method: 'POST', body: form, signal }))
  const body = await response.json().catch(() => null)
  if (!response.ok) throw refusal(response, body)
  return body as T
}
