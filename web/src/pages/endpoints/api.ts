// Dedicated endpoints, as the public API describes them, and how they are read.
import { queryOptions, useQueryClient } from '@tanstack/react-query'
import { call, data, v1 } from '../../api/client'
import type { components } from '../../api/v1'
import type { Wallet } from '../wallet/shapes'
import { isMoving } from './endpoint'

type Schemas = components['schemas']
export type Endpoint = Schemas['DedicatedEndpoint']
export type Engine = Schemas['DedicatedEngine']
export type Body = Schemas['DedicatedEndpointRequest']

/** Milliseconds between two looks: soon at what is on its way to another state, seldom at what stands. */
const pace = (all: Endpoint[]): number => (all.some(isMoving) ? 2000 : 10_000)

export const endpointsQuery = (ws: string) => queryOptions({
  queryKey: ['endpoints', ws],
  queryFn: async ({ signal }): Promise<Endpoint[]> => (await data(v1(ws).GET('/v1/dedicated-endpoints', { params: { query: { limit: 200 } }, signal }))) ?? [],
  refetchInterval: (query) => pace(query.state.data ?? []),
})

export const endpointQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['endpoint', ws, id],
  queryFn: ({ signal }): Promise<Endpoint> => data(v1(ws).GET('/v1/dedicated-endpoints/{id}', { params: { path: { id } }, signal })),
  refetchInterval: (query) => (query.state.data ? pace([query.state.data]) : false),
})

/** The engines of the server; none where the operator has configured none. */
export const enginesQuery = (ws: string) => queryOptions({
  queryKey: ['engines', ws], staleTime: 60_000,
  queryFn: async ({ signal }): Promise<Engine[]> => (await data(v1(ws).GET('/v1/dedicated-endpoints/engines', { signal }))) ?? [],
})

/** What is free in the wallet, and what holds money. */
export const walletQuery = (ws: string) => queryOptions({
  queryKey: ['wallet', ws], queryFn: ({ signal }) => call<Wallet>(ws, 'GET', '/wallet', { signal }),
})

/** Reads again what an action has changed. */
export function useChanged() {
  const client = useQueryClient()
  return (ws: string) => Promise.all(['endpoints', 'endpoint', 'wallet', 'home'].map((key) => client.invalidateQueries({ queryKey: [key, ws] })))
}
