import { CSPProvider } from '@base-ui/react/csp-provider'
import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { setSignedOut } from './api/client'
import { queries } from './app/queries'
import { returnOf } from './app/return'
import { ToastProvider } from './app/Toasts'
import { handleKey } from './keys'
import { router } from './router'
import './style.css'

addEventListener('keydown', handleKey)

// Files of a release that was replaced are gone: the newest page has the newest names.
addEventListener('vite:preloadError', () => location.reload())

setSignedOut(() => {
  if (router.state.location.pathname.endsWith('/sign-in')) return
  const back = returnOf(router.state.location.href)
  queries.clear()
  void router.navigate({ to: '/sign-in', search: { return: back } as never })
})

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <CSPProvider disableStyleElements>
      <QueryClientProvider client={queries}>
        <ToastProvider>
          <RouterProvider router={router} />
        </ToastProvider>
      </QueryClientProvider>
    </CSPProvider>
  </StrictMode>,
)
