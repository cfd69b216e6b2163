import { Outlet, useLocation, useNavigate } from '@tanstack/react-router'
import { MenuIcon, SearchIcon } from 'lucide-react'
import { lazy, Suspense, useEffect, useRef, useState } from 'react'
import { useIsDemo, useSession, useWorkspaceId } from '../api/session'
import { useKeys } from '../keys'
import { shownEntries } from '../nav'
import { IconButton } from '../ui/Button'
import { EmptyState } from '../ui/EmptyState'
import { useNarrow } from '../ui/narrow'
import { Refusal } from '../ui/Refusal'
import { SkeletonLines } from '../ui/Values'
import { announce } from './announce'
import { Nav } from './Nav'
import { returnOf } from './return'

const Palette = lazy(() => import('./Palette'))
const Sheet = lazy(() => import('./Sheet'))
const DemoLine = lazy(() => import('./Demo'))
const KeyHelp = lazy(() => import('./KeyHelp'))

/** The frame of a workspace's pages: navigation, command palette, keys. */
export function Shell() {
  const workspace = useWorkspaceId()
  const navigate = useNavigate()
  const session = useSession()
  const isDemo = useIsDemo()
  const { pathname, href } = useLocation()
  const [palette, setPalette] = useState(false)
  const [help, setHelp] = useState(false)
  const main = useRef<HTMLElement>(null)

  useKeys('Everywhere', [
    { keys: 'mod+k', label: 'Command palette', run: () => setPalette(true) },
    { keys: '?', label: 'These keys', run: () => setHelp(true) },
    ...shownEntries.filter((entry) => entry.id === 'review' || session.data?.workspaces?.some((w) => w.id === workspace)).map((entry) => ({
      keys: `g ${entry.letter}`, label: `Go to ${entry.label}`,
      run: () => void navigate({ to: `/w/${workspace}/${entry.paths[0]![0]}` as never }),
    })),
  ])

  // Once: the address changes before this frame is gone, and must not become its own way back.
  const leaving = useRef(false)
  useEffect(() => {
    if (!session.data || session.data.signed_in || leaving.current) return
    leaving.current = true
    void navigate({ to: '/sign-in', search: { return: returnOf(href) } as never, replace: true })
  }, [session.data, navigate, href])

  // After a change of the page its title is said. The page itself takes the focus.
  const before = useRef(pathname)
  useEffect(() => {
    if (before.current === pathname) return
    before.current = pathname
    const said = setTimeout(() => announce(document.title.replace(' · Sovereign', '')), 300)
    return () => clearTimeout(said)
  }, [pathname])

  if (session.error) return <div className="mx-auto max-w-xl p-8"><Refusal error={session.error} retry={() => void session.refetch()} /></div>
  if (!session.data?.signed_in) return <div className="mx-auto max-w-xl p-8"><SkeletonLines /></div>
  const known = session.data.workspaces?.some((w) => w.id === workspace) || session.data.queues?.some((q) => q.workspace_id === workspace)
  return (
    <div className="flex min-h-dvh flex-col sm:flex-row">
      <a href="#main" className="skip absolute left-2 z-70 -translate-y-12 rounded bg-accent px-3 py-1.5 text-on-accent focus:translate-y-2"
        onClick={(event) => {
          event.preventDefault()
          main.current?.focus()
        }}>Skip to the content</a>
      <Side openPalette={() => setPalette(true)} openHelp={() => setHelp(true)} />
      <main ref={main} id="main" tabIndex={-1} className="min-w-0 flex-1">
        {isDemo && <Suspense fallback={<div className="h-10 border-b border-line bg-info-ground" />}><DemoLine /></Suspense>}
        {known ? <Suspense fallback={<div className="p-6"><SkeletonLines /></div>}><Outlet /></Suspense>
          : <EmptyState title="No such workspace" text="It does not exist, or you are not a member of it. An owner or admin can invite you." />}
      </main>
      <Suspense>
        {palette && <Palette onClose={() => setPalette(false)} openHelp={() => setHelp(true)} />}
        {help && <KeyHelp onClose={() => setHelp(false)} />}
      </Suspense>
    </div>
  )
}

/** The navigation: a column at the left, on a phone a bar with a sheet that opens. */
function Side({ openPalette, openHelp }: { openPalette: () => void; openHelp: () => void }) {
  const narrow = useNarrow()
  const [open, setOpen] = useState(false)
  const { pathname } = useLocation()
  useEffect(() => setOpen(false), [pathname])
  if (!narrow) {
    return (
      <nav aria-label="Pages" className="sticky top-0 flex h-dvh w-52 shrink-0 flex-col border-r border-line bg-surface">
        <Nav openPalette={openPalette} openHelp={openHelp} />
      </nav>
    )
  }
  const here = shownEntries.find((entry) => pathname.split('/')[3] === entry.paths[0]![0]) ?? shownEntries[0]!
  return (
    <nav aria-label="Pages" className="sticky top-0 z-30 flex h-12 items-center gap-1 border-b border-line bg-surface px-2">
      <IconButton label="Menu" aria-expanded={open} onClick={() => setOpen(true)}><MenuIcon size={18} /></IconButton>
      <Suspense>{open && <Sheet onClose={() => setOpen(false)} openPalette={openPalette} openHelp={openHelp} />}</Suspense>
      <span className="font-semibold">{here.label}</span>
      <IconButton label="Search" className="ml-auto" onClick={openPalette}><SearchIcon size={18} /></IconButton>
    </nav>
  )
}
