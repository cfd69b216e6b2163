import { Autocomplete } from '@base-ui/react/autocomplete'
import { Dialog } from '@base-ui/react/dialog'
import { useNavigate } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { useSession, useWorkspace } from '../api/session'
import { keyCaps } from '../keys'
import { shownEntries } from '../nav'
import { fit, useAllCommands, type Command } from './commands'
import { signOut } from './Nav'
import { setTheme } from './theme'

/** Pages, actions and ids, by a few letters. */
export default function Palette({ onClose, openHelp }: { onClose: () => void; openHelp: () => void }) {
  const workspace = useWorkspace()
  const session = useSession().data
  const navigate = useNavigate()
  const own = useAllCommands()
  const [words, setWords] = useState('')

  const all = useMemo<Command[]>(() => {
    const go = (to: string, search: Record<string, string> = {}) => () => void navigate({ to: to as never, search: search as never })
    const base = `/w/${workspace.id}`
    return [
      ...own,
      ...shownEntries.filter((entry) => workspace.role !== '' || entry.id === 'review').map((entry) => ({
        id: `page ${entry.id}`, label: `${entry.label} · ${entry.about}`, hint: `g ${entry.letter}`, run: go(`${base}/${entry.paths[0]![0]}`),
      })),
      ...(session?.workspaces ?? []).filter((w) => w.id !== workspace.id).map((w) => ({
        id: w.id, label: `Switch to ${w.name}`, hint: w.role, run: go(`/w/${w.id}`),
      })),
      { id: 'theme dark', label: 'Dark theme', run: () => setTheme('dark') },
      { id: 'theme light', label: 'Light theme', run: () => setTheme('light') },
      { id: 'theme system', label: 'Theme as the system', run: () => setTheme('system') },
      { id: 'keys', label: 'Keyboard shortcuts', hint: '?', run: openHelp },
      { id: 'docs', label: 'API documentation', run: () => void window.open('/docs', '_blank', 'noopener') },
      { id: 'signout', label: 'Sign out', run: () => void signOut() },
    ]
  }, [own, navigate, workspace.id, workspace.role, session, openHelp])

  const shown = useMemo(() => {
    const direct = byId(words.trim())
    const found = all.map((command) => ({ command, score: fit(words, command.label) }))
      .filter((row): row is { command: Command; score: number } => row.score !== null)
      .sort((a, b) => a.score - b.score).map((row) => row.command)
    return direct ? [{ ...direct, run: () => void navigate({ to: `/w/${workspace.id}/${direct.to}` as never, search: direct.query as never }) }, ...found] : found
  }, [all, words, navigate, workspace.id])

  const pick = (command: Command) => {
    onClose()
    command.run()
  }
  return (
    <Dialog.Root open onOpenChange={(open) => open || onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className="fixed inset-0 z-40 bg-shade" />
        <Dialog.Popup aria-label="Command palette" className="popup fixed top-[12vh] left-1/2 z-50 w-[min(560px,calc(100vw-24px))] -translate-x-1/2">
          <Autocomplete.Root items={shown} filter={null} inline open autoHighlight="always" keepHighlight value={words} onValueChange={setWords}
            itemToStringValue={(command: Command) => command.label}>
            <Autocomplete.Input aria-label="Search pages and actions" placeholder="A page, an action, or an id"
              className="h-11 w-full border-b border-line bg-transparent px-4 outline-none" />
            <Autocomplete.List className="max-h-[50vh] overflow-y-auto py-1">
              {(command: Command) => (
                <Autocomplete.Item key={command.id} value={command} onClick={() => pick(command)}
                  className="flex cursor-default items-center gap-2 px-4 py-1.5 text-sm data-highlighted:bg-accent-ground">
                  <span className="min-w-0 flex-1 truncate">{command.label}</span>
                  {command.hint && (command.hint.length <= 3
                    ? keyCaps(command.hint).map((cap, i) => <kbd key={i} className="kbd">{cap}</kbd>)
                    : <span className="text-xs text-faint">{command.hint}</span>)}
                </Autocomplete.Item>
              )}
            </Autocomplete.List>
            <Autocomplete.Empty className="px-4 py-3 text-sm text-soft empty:hidden">Nothing fits. Ids can be pasted as well.</Autocomplete.Empty>
          </Autocomplete.Root>
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  )
}

// Where a pasted id leads, by its prefix.
const places: [RegExp, (id: string) => { to: string; query?: Record<string, string> }][] = [
  [/^(req|log)_\w+$/, (id) => ({ to: 'logs', query: { row: id } })],
  [/^crit_\w+$/, (id) => ({ to: `judges/${id}` })],
  [/^ds_\w+$/, (id) => ({ to: `datasets/${id}` })],
  [/^eval_\w+$/, (id) => ({ to: `evals/${id}` })],
  [/^rq_\w+$/, (id) => ({ to: `review/${id}` })],
  [/^rs_\w+$/, (id) => ({ to: `rewards/${id}` })],
  [/^(ftjob|grpo)_\w+$/, (id) => ({ to: `training/runs/${id}` })],
  [/^raft_\w+$/, (id) => ({ to: `training/rounds/${id}` })],
  [/^mv_\w+$/, (id) => ({ to: `training/models/${id}` })],
]

function byId(text: string) {
  for (const [pattern, place] of places) {
    if (pattern.test(text)) return { id: text, label: `Open ${text}`, ...place(text) }
  }
}
