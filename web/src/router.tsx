import {
  createRootRoute, createRoute, createRouter, lazyRouteComponent, Outlet, type ErrorComponentProps,
} from '@tanstack/react-router'
import { Shell } from './app/Shell'
import { Start } from './app/Start'
import { entries } from './nav'
import { parseSearch, stringifySearch } from './query'
import { EmptyState } from './ui/EmptyState'
import { Refusal } from './ui/Refusal'

const Broken = ({ error, reset }: ErrorComponentProps) => <div className="p-6"><Refusal error={error} retry={reset} /></div>

const root = createRootRoute({
  component: Outlet,
  errorComponent: Broken,
  notFoundComponent: () => (
    <main className="mx-auto max-w-xl p-8"><EmptyState title="There is no such page" text="The address may be mistyped."
      action={<a className="link" href="/dashboard">Go to the dashboard</a>} /></main>
  ),
})

const start = createRoute({ getParentRoute: () => root, path: '/', component: Start })

const signIn = createRoute({
  getParentRoute: () => root, path: 'sign-in', component: lazyRouteComponent(() => import('./pages/signin/SignIn')),
})

const workspace = createRoute({ getParentRoute: () => root, path: 'w/$workspace', component: Shell, errorComponent: Broken })

const pages = entries.flatMap((entry) => entry.paths.map(([path, load]) => createRoute({
  getParentRoute: () => workspace, path: path || '/', component: lazyRouteComponent(load), errorComponent: Broken,
})))

export const router = createRouter({
  routeTree: root.addChildren([start, signIn, workspace.addChildren(pages)]),
  basepath: '/dashboard',
  parseSearch,
  stringifySearch,
  defaultPreload: 'intent',
  scrollRestoration: true,
})
