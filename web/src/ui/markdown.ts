// A small, safe part of Markdown: headings, lists, quotes, code, emphasis and links. Raw HTML stays text, and there are
// no images: what a model writes must not fetch anything.
export type Inline =
  | { kind: 'text' | 'strong' | 'em' | 'code'; text: string }
  | { kind: 'link'; text: string; href: string }

export type Block =
  | { kind: 'heading'; level: number; content: Inline[] }
  | { kind: 'paragraph' | 'quote'; content: Inline[] }
  | { kind: 'code'; text: string }
  | { kind: 'list'; ordered: boolean; items: Inline[][] }

const inline = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\n]+)\*|!?\[([^\]\n]*)\]\(([^)\s]+)\)/g

/** Links lead to other pages by https, http or mail; any other address stays text. */
export function safeHref(href: string): string | null {
  try {
    const url = new URL(href)
    return ['https:', 'http:', 'mailto:'].includes(url.protocol) ? url.href : null
  } catch {
    return null
  }
}

export function parseInline(text: string): Inline[] {
  const out: Inline[] = []
  let from = 0
  for (const match of text.matchAll(inline)) {
    if (match.index > from) out.push({ kind: 'text', text: text.slice(from, match.index) })
    from = match.index + match[0].length
    const [all, code, strong, em, label, href] = match
    const safe = href === undefined || all.startsWith('!') ? null : safeHref(href)
    if (code !== undefined) out.push({ kind: 'code', text: code })
    else if (strong !== undefined) out.push({ kind: 'strong', text: strong })
    else if (em !== undefined) out.push({ kind: 'em', text: em })
    else if (safe) out.push({ kind: 'link', text: label || safe, href: safe })
    else out.push({ kind: 'text', text: all })
  }
  if (from < text.length) out.push({ kind: 'text', text: text.slice(from) })
  return out
}

export function parseMarkdown(text: string): Block[] {
  const blocks: Block[] = []
  const lines = text.split('\n')
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i]!
    const heading = /^(#{1,6})\s+(.*)$/.exec(line)
    const item = /^\s*(?:([-*+])|(\d+)[.)])\s+(.*)$/.exec(line)
    if (line.startsWith('```')) {
      const end = lines.findIndex((other, n) => n > i && other.startsWith('```'))
      const stop = end < 0 ? lines.length : end
      blocks.push({ kind: 'code', text: lines.slice(i + 1, stop).join('\n') })
      i = stop
    } else if (heading) {
      blocks.push({ kind: 'heading', level: heading[1]!.length, content: parseInline(heading[2]!) })
    } else if (item) {
      const last = blocks[blocks.length - 1]
      const ordered = item[2] !== undefined
      if (last?.kind === 'list' && last.ordered === ordered) last.items.push(parseInline(item[3]!))
      else blocks.push({ kind: 'list', ordered, items: [parseInline(item[3]!)] })
    } else if (line.startsWith('>')) {
      blocks.push({ kind: 'quote', content: parseInline(line.replace(/^>\s?/, '')) })
    } else if (line.trim() !== '') {
      const last = blocks[blocks.length - 1]
      if (last?.kind === 'paragraph' && lines[i - 1]?.trim() !== '') last.content.push(...parseInline(`\n${line}`))
      else blocks.push({ kind: 'paragraph', content: parseInline(line) })
    }
  }
  return blocks
}
