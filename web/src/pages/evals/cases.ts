// Cases that are pasted or dropped as JSONL: ours, chat examples, and what OpenAI's evals exported.

export interface Case { id?: string; messages: unknown[]; tools?: unknown }

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value)

const isMessages = (value: unknown): value is Record<string, unknown>[] =>
  Array.isArray(value) && value.length > 0 && value.every((m) => isObject(m) && typeof m.role === 'string')

/** The question of one line: its messages up to the last that is not the assistant's. */
function questionOf(row: Record<string, unknown>): unknown[] | undefined {
  const item = isObject(row.item) ? row.item : row // OpenAI's evals wrap their rows in item
  for (const value of [item.messages, item.input, item.prompt, item.question]) {
    if (isMessages(value)) {
      const last = value.findLastIndex((m) => m.role !== 'assistant')
      if (last >= 0) return value.slice(0, last + 1)
    }
    if (typeof value === 'string' && value.trim()) return [{ role: 'user', content: value }]
  }
}

/** Reads JSONL. A line that is no case is named with its number. */
export function parseCases(text: string, most = 1000): { cases: Case[]; problems: string[] } {
  const cases: Case[] = []
  const problems: string[] = []
  text.split('\n').forEach((line, i) => {
    if (!line.trim()) return
    let row: unknown
    try {
      row = JSON.parse(line)
    } catch {
      problems.push(`line ${i + 1} is not JSON`)
      return
    }
    const messages = isObject(row) ? questionOf(row) : undefined
    if (!messages) {
      problems.push(`line ${i + 1} has no messages, input or prompt`)
    } else if (cases.length === most) {
      if (problems.length === 0 || !problems[problems.length - 1]!.startsWith('more')) problems.push(`more than ${most} cases: the others are left out`)
    } else {
      const { id, tools } = row as { id?: unknown; tools?: unknown }
      cases.push({ messages, ...(typeof id === 'string' && { id }), ...(Array.isArray(tools) && { tools }) })
    }
  })
  return { cases, problems }
}
