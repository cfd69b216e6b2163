// What people and models wrote. It is text, whatever it contains.
import { useState, type ReactNode } from 'react'
import { Button } from './Button'
import { CopyButton } from './Copy'
import { Dialog } from './Dialog'
import { parseMarkdown, type Block, type Inline } from './markdown'

interface Props { text: string; label?: ReactNode; markdown?: boolean; most?: number }

const cut = 6000 // characters that are shown before a click: a browser lays out long text slowly

/** Plain text, on a click as Markdown. */
export function TextView({ text, label, markdown = true, most = cut }: Props) {
  const [rendered, setRendered] = useState(false)
  const [whole, setWhole] = useState(false)
  const shown = whole || text.length <= most ? text : text.slice(0, most)
  return (
    <div>
      <div className="mb-1 flex items-center gap-1 text-xs text-soft">
        <span className="font-medium">{label}</span>
        <span className="ml-auto" />
        {markdown && (
          <Button small look="quiet" aria-pressed={rendered} onClick={() => setRendered(!rendered)}>
            {rendered ? 'Plain text' : 'Markdown'}
          </Button>
        )}
        <CopyButton text={text} label="" what="text" />
      </div>
      <div tabIndex={0} className="max-h-[60vh] overflow-auto rounded-md border border-line bg-ground px-3 py-2 text-sm">
        {rendered ? <Markdown text={shown} /> : <pre className="font-mono text-xs leading-5 break-words whitespace-pre-wrap">{shown}</pre>}
        {shown.length < text.length && (
          <Button small className="mt-2" onClick={() => setWhole(true)}>
            Show all {text.length.toLocaleString('en')} characters
          </Button>
        )}
      </div>
    </div>
  )
}

/** JSON, indented. */
export function JsonView({ value, label }: { value: unknown; label?: ReactNode }) {
  return <TextView text={typeof value === 'string' ? value : JSON.stringify(value, null, 2) ?? ''} label={label} markdown={false} />
}

export function Markdown({ text }: { text: string }) {
  const [leaving, setLeaving] = useState('')
  return (
    <div className="space-y-2">
      {parseMarkdown(text).map((block, i) => <BlockView key={i} block={block} leave={setLeaving} />)}
      <Dialog open={leaving !== ''} onClose={() => setLeaving('')} title="Leave the dashboard?" footer={<>
        <Button onClick={() => setLeaving('')}>Stay</Button>
        <a className="link px-2 text-sm" href={leaving} target="_blank" rel="noopener noreferrer" onClick={() => setLeaving('')}>
          Open in a new tab
        </a>
      </>}>
        <p className="text-sm text-soft">The text that holds this link was written by a model or a person. It leads to:</p>
        <p className="mt-2 font-mono text-xs break-all">{leaving}</p>
      </Dialog>
    </div>
  )
}

function BlockView({ block, leave }: { block: Block; leave: (href: string) => void }) {
  const draw = (parts: Inline[]) => parts.map((part, i) => <InlineView key={i} part={part} leave={leave} />)
  switch (block.kind) {
    case 'heading':
      return <p className="font-semibold">{draw(block.content)}</p>
    case 'code':
      return <pre className="overflow-x-auto rounded bg-raised p-2 font-mono text-xs">{block.text}</pre>
    case 'quote':
      return <blockquote className="border-l-2 border-edge pl-3 text-soft">{draw(block.content)}</blockquote>
    case 'list': {
      const List = block.ordered ? 'ol' : 'ul'
      return (
        <List className={block.ordered ? 'list-decimal pl-5' : 'list-disc pl-5'}>
          {block.items.map((item, i) => <li key={i}>{draw(item)}</li>)}
        </List>
      )
    }
    default:
      return <p className="whitespace-pre-wrap">{draw(block.content)}</p>
  }
}

function InlineView({ part, leave }: { part: Inline; leave: (href: string) => void }) {
  switch (part.kind) {
    case 'code':
      return <code className="rounded bg-raised px-1 font-mono text-xs">{part.text}</code>
    case 'strong':
      return <strong>{part.text}</strong>
    case 'em':
      return <em>{part.text}</em>
    case 'link': {
      const host = part.href.startsWith('mailto:') ? part.href.slice(7) : new URL(part.href).host
      return (
        <button type="button" className="link" onClick={() => leave(part.href)}>
          {part.text} <span className="text-xs text-faint">({host})</span>
        </button>
      )
    }
    default:
      return part.text
  }
}
