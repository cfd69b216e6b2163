import { useNavigate } from '@tanstack/react-router'
import { BookOpenIcon, ChevronsUpDownIcon, KeyboardIcon, LogOutIcon, MonitorIcon, MoonIcon, SearchIcon, SunIcon } from 'lucide-react'
import { call } from '../api/client'
import { useSession, useWorkspace } from '../api/session'
import { keyCaps } from '../keys'
import { shownEntries } from '../nav'
import { A } from '../ui/Link'
import { Menu } from '../ui/Menu'
import { queries } from './queries'
import { setTheme, useTheme, type Theme } from './theme'
import { useToast } from './Toasts'

const themes: [Theme, string, typeof SunIcon][] = [
  ['system', 'As the system', MonitorIcon], ['light', 'Light', SunIcon], ['dark', 'Dark', MoonIcon],
]

export async function signOut() {
  await call(null, 'DELETE', '/session')
  queries.clear()
  location.assign('/dashboard/sign-in')
}

export function Nav({ openPalette, openHelp }: { openPalette: () => void; openHelp: () => void }) {
  const workspace = useWorkspace()
  const session = useSession().data
  const theme = useTheme()
  const navigate = useNavigate()
  const { fail } = useToast()
  const isReviewer = workspace.role === '' // sees the queues that were opened to them, and nothing else
  const entries = shownEntries.filter((entry) => !isReviewer || entry.id === 'review')
  return (
    <>
      <div className="p-2">
        <Menu trigger={
          <button type="button" className="flex h-9 w-full items-center gap-2 rounded-md px-2 text-left hover:bg-hover">
            <span aria-hidden className="flex size-6 shrink-0 items-center justify-center rounded bg-accent text-xs font-bold text-on-accent">
              {(workspace.name[0] ?? '?').toUpperCase()}
            </span>
            <span className="min-w-0 flex-1 truncate text-sm font-semibold">
              <span className="only-read">Workspace </span>{workspace.name}
            </span>
            <ChevronsUpDownIcon size={14} className="shrink-0 text-faint" aria-hidden />
          </button>
        } groups={[{
          heading: 'Workspaces',
          items: (session?.workspaces ?? []).map((w) => ({
            label: w.name, hint: w.role, chosen: w.id === workspace.id, run: () => void navigate({ to: `/w/${w.id}` as never }),
          })),
        }]} />
        <button type="button" onClick={openPalette} className="mt-1 flex h-8 w-full items-center gap-2 rounded-md border
          border-line bg-ground px-2 text-sm text-faint hover:border-edge">
          <SearchIcon size={14} aria-hidden /> <span className="truncate">Search</span>
          <span aria-hidden className="ml-auto flex gap-0.5">{keyCaps('mod+k').map((cap) => <kbd key={cap} className="kbd">{cap}</kbd>)}</span>
        </button>
      </div>
      <ul className="min-h-0 flex-1 space-y-px overflow-y-auto px-2">
        {entries.map((entry) => (
          <li key={entry.id}>
            <A to={entry.paths[0]![0]} exact={entry.id === 'home'} title={`${entry.about} (g ${entry.letter})`}
              className="flex h-8 items-center gap-2.5 rounded-md px-2 text-sm text-soft hover:bg-hover hover:text-text
                aria-[current=page]:bg-accent-ground aria-[current=page]:font-medium aria-[current=page]:text-accent
                max-sm:h-10">
              <entry.icon size={16} aria-hidden /> {entry.label}
            </A>
          </li>
        ))}
      </ul>
      <div className="border-t border-line p-2">
        <Menu side="top" trigger={
          <button type="button" className="flex h-9 w-full items-center gap-2 rounded-md px-2 text-left text-sm text-soft hover:bg-hover">
            <span className="min-w-0 flex-1 truncate">{session?.email}</span>
            <ChevronsUpDownIcon size={14} className="shrink-0 text-faint" aria-hidden />
          </button>
        } groups={[
          { heading: 'Theme', items: themes.map(([id, label, Icon]) => ({
            label, icon: <Icon size={14} />, chosen: theme === id, run: () => setTheme(id),
          })) },
          { items: [
            { label: 'Keyboard', icon: <KeyboardIcon size={14} />, hint: '?', run: openHelp },
            { label: 'API documentation', icon: <BookOpenIcon size={14} />, run: () => void window.open('/docs', '_blank', 'noopener') },
          ] },
          { items: [{ label: 'Sign out', icon: <LogOutIcon size={14} />, run: () => void signOut().catch(fail) }] },
        ]} />
      </div>
    </>
  )
}
