import { CheckIcon, CopyIcon, TerminalIcon } from 'lucide-react'
import { useState } from 'react'
import { curl, type Call } from '../api/curl'
import { announce } from '../app/announce'
import { Button } from './Button'

export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch { // no permission, or plain HTTP
    const area = document.createElement('textarea')
    area.value = text
    area.className = 'only-read'
    document.body.append(area)
    area.select()
    const done = document.execCommand('copy')
    area.remove()
    return done
  }
}

interface Props { text: string | (() => string); label?: string; what?: string; small?: boolean; icon?: 'copy' | 'terminal' }

export function CopyButton({ text, label = 'Copy', what, small = true, icon = 'copy' }: Props) {
  const [state, setState] = useState<'' | 'copied' | 'failed'>('')
  const press = async () => {
    const done = await copy(typeof text === 'string' ? text : text())
    setState(done ? 'copied' : 'failed')
    announce(done ? `${what ?? label} copied` : 'Copying failed')
    setTimeout(() => setState(''), 1500)
  }
  const Icon = state === 'copied' ? CheckIcon : icon === 'terminal' ? TerminalIcon : CopyIcon
  return (
    <Button small={small} look={small ? 'quiet' : 'plain'} onClick={press} title={what ? `Copy ${what}` : undefined}
      aria-label={what ? `Copy ${what}` : undefined} icon={<Icon size={small ? 12 : 14} />}>
      {state === '' ? label : state === 'copied' ? 'Copied' : 'Failed'}
    </Button>
  )
}

/** Copies the same call for a terminal. */
export const CurlButton = ({ call, small }: { call: Call; small?: boolean }) => (
  <CopyButton text={() => curl(call)} label="curl" what="as curl" small={small} icon="terminal" />
)

/** An id that is copied by a click. */
export function Id({ value }: { value: string }) {
  return (
    <span className="inline-flex max-w-full items-center gap-1 align-middle">
      <code className="truncate font-mono text-xs">{value}</code><CopyButton text={value} label="" what={`id ${value}`} />
    </span>
  )
}
