/** A refusal of the server, or a call that got no answer (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly requestId = '',
    readonly param = '',
    readonly retryAfter = 0,
    /** The whole answer: some refusals say more beside their error. */
    readonly body: unknown = null,
  ) {
    super(message)
    this.name = 'ApiError'
  }

  /** What the reader can do about it. */
  get remedy(): string {
    switch (true) {
      case this.status === 0:
        return 'Check the connection; the page tries again by itself.'
      case this.status === 401:
        return 'Sign in again.'
      case this.status === 402:
        return this.code === 'budget_exceeded' ? 'An owner or admin can raise the budget in Settings.' : 'Top up the wallet.'
      case this.code === 'insufficient_permissions':
        return 'This needs an owner or admin of the workspace. Ask one of them, see Settings → Team.'
      case this.status === 403:
        return 'Ask an owner or admin of the workspace.'
      case this.code === 'logging_disabled':
        return 'An owner or admin can switch logging on in Settings.'
      case this.code === 'quota_exceeded':
        return 'Delete some that are no longer needed, or ask the operator for a higher quota.'
      case this.status === 404:
        return 'It may have been deleted, or belong to another workspace.'
      case this.status === 409 || this.status === 412:
        return 'Look at the current state and try again.'
      case this.status === 429:
        return this.retryAfter ? `Try again in ${this.retryAfter} s.` : 'Try again in a moment.'
      case this.status >= 500:
        return 'Try again. If it stays, give the operator the request id.'
      default:
        return 'Correct the value and try again.'
    }
  }
}

/** Whether repeating the same read can help. */
export const isPassing = (error: unknown): boolean =>
  error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 500)

/** Reads the error envelope of an answer. */
export function refusal(response: Response, body: unknown): ApiError {
  const id = response.headers.get('X-Request-Id') ?? ''
  const wait = Number(response.headers.get('Retry-After') ?? 0) || 0
  const inner = (body as { error?: unknown } | null)?.error
  if (typeof inner === 'string') return new ApiError(response.status, '', inner, id, '', wait)
  const e = (inner ?? {}) as { message?: string; code?: string | null; param?: string | null }
  const message = e.message ?? `The server answered ${response.status} ${response.statusText}`.trim()
  return new ApiError(response.status, e.code ?? '', message, id, e.param ?? '', wait, body)
}

export const asApiError = (error: unknown): ApiError =>
  error instanceof ApiError ? error : new ApiError(0, 'page_error', error instanceof Error ? error.message : String(error))
