import { Badge } from '../../ui/Badge'
import { JsonView, TextView } from '../../ui/Viewer'
import { readMessage, readMessages, type Message } from './messages'

interface Props { messages: unknown; response: unknown; tools?: unknown; /** The messages before this one are folded: a step repeats them. */ from?: number }

/** A logged exchange: what was sent, and what was answered. */
export function Exchange({ messages, response, tools, from = 0 }: Props) {
  const all = readMessages(messages)
  const folded = all.slice(0, from)
  return (
    <div className="space-y-3">
      {folded.length > 0 && (
        <details>
          <summary className="text-sm text-soft">{folded.length} earlier messages, as in the step before</summary>
          <div className="mt-2 space-y-3 border-l-2 border-line pl-3">{folded.map((m, i) => <MessageView key={i} message={m} />)}</div>
        </details>
      )}
      {all.slice(from).map((m, i) => <MessageView key={i} message={m} />)}
      <div className="rounded-md border-l-2 border-accent pl-3"><MessageView message={readMessage(response)} answer /></div>
      {Array.isArray(tools) && tools.length > 0 && (
        <details><summary className="text-sm text-soft">{tools.length} tools were offered</summary><JsonView value={tools} /></details>
      )}
    </div>
  )
}

export function MessageView({ message, answer }: { message: Message; answer?: boolean }) {
  const label = (
    <span className="flex items-center gap-1.5">
      {answer ? 'Answer' : message.role}{message.name && <code className="font-mono">{message.name}</code>}
      {message.toolCallId && <code className="font-mono text-faint">{message.toolCallId}</code>}
      {message.other.map((o, i) => <Badge key={i}>{o}</Badge>)}
    </span>
  )
  return (
    <div className="space-y-2">
      {(message.text !== '' || message.calls.length === 0) && <TextView label={label} text={message.text} />}
      {message.calls.map((call, i) => (
        <TextView key={i} markdown={false} text={pretty(call.args)} label={<>{message.text === '' && i === 0 && label} calls <code className="font-mono text-text">{call.name}</code></>} />
      ))}
    </div>
  )
}

function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2)
  } catch {
    return json
  }
}
