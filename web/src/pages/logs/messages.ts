// Reading logged messages, whose JSON is what callers sent: nothing of its shape is certain.
import type { components } from '../../api/v1'

export type Log = components['schemas']['Row']

export interface ToolCall { id: string; name: string; args: string }
export interface Message { role: string; text: string; calls: ToolCall[]; name?: string; toolCallId?: string; other: string[] }

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value)
const asText = (value: unknown): string => (typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value))

/** The text of a message's content: a string, or parts. Parts that are not text are named. */
function contentOf(content: unknown): { text: string; other: string[] } {
  if (!Array.isArray(content)) return { text: asText(content), other: [] }
  const texts: string[] = []
  const other: string[] = []
  for (const part of content) {
    if (isObject(part) && typeof part.text === 'string') texts.push(part.text)
    else if (isObject(part) && typeof part.refusal === 'string') texts.push(part.refusal)
    else other.push(isObject(part) ? asText(part.type) || 'part' : asText(part))
  }
  return { text: texts.join('\n'), other }
}

export function readMessage(value: unknown): Message {
  const m = isObject(value) ? value : { content: value }
  const { text, other } = contentOf(m.content ?? m.refusal)
  const calls = (Array.isArray(m.tool_calls) ? m.tool_calls : []).filter(isObject).map((call) => {
    const f = isObject(call.function) ? call.function : isObject(call.custom) ? call.custom : {}
    return { id: asText(call.id), name: asText(f.name) || 'tool', args: asText(f.arguments ?? f.input) }
  })
  return { role: asText(m.role) || 'assistant', text, calls, other, name: asText(m.name) || undefined, toolCallId: asText(m.tool_call_id) || undefined }
}

export const readMessages = (value: unknown): Message[] => (Array.isArray(value) ? value.map(readMessage) : [])

const oneLine = (text: string, most: number): string => text.slice(0, most * 2).replace(/\s+/g, ' ').trim().slice(0, most)

/** What was asked, in a line: the last message of a person. */
export function asked(log: Log, most = 160): string {
  const messages = readMessages(log.messages)
  const last = messages.findLast((m) => m.role === 'user') ?? messages[messages.length - 1]
  return last ? oneLine(last.text || last.other.map((o) => `[${o}]`).join(' '), most) : ''
}

/** What was answered, in a line. */
export function answered(log: Log, most = 160): string {
  const m = readMessage(log.response)
  return oneLine(m.text || m.calls.map((call) => `${call.name}(${call.args})`).join(' '), most)
}
