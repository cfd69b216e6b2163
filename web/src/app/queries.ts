import { QueryClient } from '@tanstack/react-query'
import { isPassing } from '../api/errors'

/** What the page has read. A refusal is not repeated; a server that does not answer is asked again, ever later. */
export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 15_000,
      gcTime: 5 * 60_000,
      refetchOnWindowFocus: false,
      retry: (failures, error) => isPassing(error) && failures < 4,
      retryDelay: (failures) => Math.min(1000 * 2 ** failures, 15_000),
    },
    mutations: { retry: false },
  },
})
