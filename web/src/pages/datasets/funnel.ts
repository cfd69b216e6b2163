// A dataset's curation as a funnel, and its lines as examples.
import type { FunnelStep } from '../../chart/Funnel'
import type { components } from '../../api/v1'
import { readMessages, type Message } from '../logs/messages'

export type Dataset = components['schemas']['Dataset']

const reasons = [['errored', 'errored'], ['truncated', 'truncated'], ['empty', 'empty'], ['duplicate', 'duplicates']] as const

/** What was read, what curation left, and how it was split. */
export function funnelOf(dataset: Dataset): FunnelStep[] {
  const { scanned, kept, dropped, folded_turns: folded } = dataset.curation
  const lost = reasons.map(([field, reason]) => ({ reason, value: dropped[field] })).filter((one) => one.value > 0)
  const usable = scanned - lost.reduce((sum, one) => sum + one.value, 0)
  const steps: FunnelStep[] = [
    { label: 'Read from the logs', value: scanned },
    { label: 'Usable', value: usable, lost },
    { label: 'Examples', value: kept, lost: folded > 0 ? [{ reason: 'earlier turns, folded into later ones', value: folded }] : [] },
  ]
  if (dataset.holdout_id || dataset.holdout_of) {
    const other = kept - dataset.rows
    steps.push({ label: dataset.role === 'eval' ? 'Held out: this dataset' : 'For training: this dataset', value: dataset.rows, lost: other > 0 ? [{ reason: dataset.role === 'eval' ? 'for training' : 'held out', value: other }] : [] })
  }
  return steps
}

export interface Example { messages: Message[]; tools: unknown[]; text: string }

/** Reads a line of an export. A line that cannot be read is shown as it is. */
export function readExample(line: string): Example {
  try {
    const value = JSON.parse(line) as { messages?: unknown; tools?: unknown }
    return { messages: readMessages(value?.messages), tools: Array.isArray(value?.tools) ? value.tools : [], text: line }
  } catch {
    return { messages: [], tools: [], text: line }
  }
}

/** Takes whole lines out of what was read so far. */
export function takeLines(buffer: string, most: number): { lines: string[]; rest: string } {
  const parts = buffer.split('\n')
  const rest = parts.pop() ?? ''
  const lines = parts.filter((line) => line.trim() !== '')
  return { lines: lines.slice(0, most), rest }
}

/** The first lines of an export. Reading stops when there are enough, so that a large dataset is not downloaded. */
export async function firstLines(url: string, most: number, signal?: AbortSignal): Promise<string[]> {
  const stop = new AbortController()
  signal?.addEventListener('abort', () => stop.abort())
  const response = await fetch(url, { signal: stop.signal })
  if (!response.ok || !response.body) throw new Error(`The examples cannot be read: ${response.status}`)
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  const out: string[] = []
  let buffer = ''
  for (;;) {
    const { done, value } = await reader.read()
    buffer += value ?? ''
    const taken = takeLines(done && buffer !== '' ? `${buffer}\n` : buffer, most - out.length)
    out.push(...taken.lines)
    buffer = taken.rest
    if (done || out.length >= most) break
  }
  stop.abort()
  return out
}
