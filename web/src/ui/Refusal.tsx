import { OctagonAlertIcon } from 'lucide-react'
import { asApiError } from '../api/errors'
import { Button } from './Button'
import { CopyButton } from './Copy'

interface Props {
  error: unknown
  retry?: () => void
  title?: string
  /** What to do, where the usual advice for the status does not fit; empty for none. */
  remedy?: string
}

/** A refusal: what happened, what to do about it or who may do it, and the request id to quote. */
export function Refusal({ error, retry, title, remedy }: Props) {
  const e = asApiError(error)
  return (
    <div role="alert" className="flex gap-2.5 rounded-md border border-fail/40 bg-fail-ground px-3 py-2 text-sm">
      <OctagonAlertIcon size={16} className="mt-0.5 shrink-0 text-fail" aria-hidden />
      <div className="min-w-0 flex-1">
        {title && <p className="font-medium">{title}</p>}
        <p className="break-words">{sentence(e.message)}</p>
        {e.code !== 'page_error' && remedy !== '' && <p className="mt-0.5 text-soft">{remedy ?? e.remedy}</p>}
        {e.requestId && (
          <p className="mt-1 flex flex-wrap items-center gap-1 text-xs text-soft">
            Request <code className="font-mono">{e.requestId}</code>
            <CopyButton text={e.requestId} label="" what="request id" />
          </p>
        )}
      </div>
      {retry && <Button small onClick={retry}>Try again</Button>}
    </div>
  )
}

/** A message of the API as a sentence. */
export const sentence = (text: string): string =>
  text ? text[0]!.toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? '' : '.') : ''
