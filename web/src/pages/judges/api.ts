// Judges, as the public API describes them, and how they are read.
import { queryOptions } from '@tanstack/react-query'
import { data, v1 } from '../../api/client'
import { asApiError } from '../../api/errors'
import type { components } from '../../api/v1'

type Schemas = components['schemas']
export type Judge = Schemas['Criterion']
export type Calibration = Schemas['Calibration'] & { ties?: number }
export type Block = NonNullable<Calibration['block']> & { kappa_ci?: number[] | null; ties?: number }
export type Certificate = Schemas['Certificate'] & { ties?: number }
export type Report = Schemas['Report'] & { ties?: number; tied?: { label_id: string; request_id: string | null }[] }
export type Scan = Schemas['Scan']
export type Rates = Schemas['Rates']
export type Label = Schemas['Label']
export type Tier = Judge['trust']

export const isRunning = (run: { status: string } | undefined | null) => run?.status === 'QUEUED' || run?.status === 'RUNNING'
const oftenWhileRunning = (runs: { status: string }[] | undefined) => (runs?.some(isRunning) ? 1500 : false)

export const judgesQuery = (ws: string) => queryOptions({
  queryKey: ['criteria', ws],
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria', { params: { query: { limit: 200 } }, signal })),
})

export const judgeQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['criterion', ws, id],
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria/{id}', { params: { path: { id } }, signal })),
})

export const calibrationsQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['calibrations', ws, id],
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria/{id}/calibrations', { params: { path: { id }, query: { limit: 100 } }, signal })),
  refetchInterval: (query) => oftenWhileRunning(query.state.data?.data),
})

/** The judge's last certificate, or another by its id; null where there is none. */
export const certificateQuery = (ws: string, judge: string, id = '') => queryOptions({
  queryKey: ['certificate', ws, judge, id],
  queryFn: async ({ signal }): Promise<Certificate | null> => {
    try {
      return id ? await data(v1(ws).GET('/v1/certificates/{id}', { params: { path: { id } }, signal }))
        : await data(v1(ws).GET('/v1/criteria/{id}/certificate', { params: { path: { id: judge } }, signal }))
    } catch (error) {
      if (!id && asApiError(error).status === 404) return null
      throw error
    }
  },
})

/** Rulings on the last calibration; null where the judge has none. */
export const reportQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['adjudication', ws, id],
  queryFn: async ({ signal }): Promise<Report | null> => {
    try {
      return await data(v1(ws).GET('/v1/criteria/{id}/adjudication', { params: { path: { id } }, signal }))
    } catch (error) {
      if ([404, 409].includes(asApiError(error).status)) return null
      throw error
    }
  },
})

export const scansQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['scans', ws, id],
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria/{id}/scans', { params: { path: { id }, query: { limit: 50 } }, signal })),
  refetchInterval: (query) => oftenWhileRunning(query.state.data?.data),
})

export const monitoringQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['monitoring', ws, id],
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria/{id}/monitoring', { params: { path: { id } }, signal })),
  refetchInterval: (query) => (query.state.data?.enabled ? 15_000 : false),
})

export const improvementsQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['improvements', ws, id],
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria/{id}/improvements', { params: { path: { id }, query: { limit: 50 } }, signal })),
  refetchInterval: (query) => oftenWhileRunning(query.state.data?.data),
})

export const suggestionsQuery = (ws: string) => queryOptions({
  queryKey: ['suggestions', ws],
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/suggestions', { params: { query: { limit: 20 } }, signal })),
  refetchInterval: (query) => oftenWhileRunning(query.state.data?.data),
})

export const modelsQuery = (ws: string) => queryOptions({
  queryKey: ['models', ws],
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/models', { signal })),
  staleTime: 5 * 60_000,
})
