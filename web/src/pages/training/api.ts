// Training, as the public API describes it, and how it is read.
import { queryOptions, useQuery } from '@tanstack/react-query'
import { useEffect, useMemo, useRef } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import type { components } from '../../api/v1'
import { extend } from './curves'
import { fromGrpo, fromJob, isFinal, type Row } from './rows'

type Schemas = components['schemas']
export type Job = Schemas['FineTuningJob']
export type Grpo = Schemas['GRPORun']
export type Candidate = Schemas['GRPOCandidate']
export type Series = Schemas['TrainingSeries']
export type Event = Schemas['TrainingEvent']
export type Checkpoint = Schemas['FineTuningCheckpoint']
export type Model = Schemas['TrainableModel']
export type File = Schemas['TrainingFile']
export type Estimate = Schemas['FineTuningEstimate']
export type Version = Schemas['ModelVersion']
export type Lineage = Schemas['ModelLineage']
export type Tool = Schemas['EnvironmentTool']
export type ToolResult = Schemas['EnvironmentToolResult']

const page = { params: { query: { limit: 200 } } }
const often = 3000 // milliseconds between two looks at what runs

export const jobsQuery = (ws: string) => queryOptions({
  queryKey: ['ft-jobs', ws],
  queryFn: async ({ signal }) => (await data(v1(ws).GET('/v1/fine-tuning/jobs', { ...page, signal }))) ?? [],
  refetchInterval: (query) => (query.state.data?.some((job) => !isFinal(job.status)) ? often : false),
})

/** GRPO runs; owners and admins alone may read them. */
export const grpoQuery = (ws: string, enabled: boolean) => queryOptions({
  queryKey: ['grpo-runs', ws], enabled,
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/grpo/runs', { ...page, signal })),
  refetchInterval: (query) => (query.state.data?.active_runs ? often : false),
})

/** What workers of the last day can train; none where no worker has asked for work. */
export const trainableQuery = (ws: string) => queryOptions({
  queryKey: ['trainable', ws],
  queryFn: async ({ signal }): Promise<Model[]> => (await data(v1(ws).GET('/v1/fine-tuning/models', { signal }))) ?? [],
  refetchInterval: (query) => (query.state.data?.length === 0 ? 5000 : false),
})

export const runQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['training-run', ws, id],
  queryFn: async ({ signal }): Promise<Row> => {
    const params = { params: { path: { id } }, signal }
    return id.startsWith('grpo') ? fromGrpo(await data(v1(ws).GET('/v1/grpo/runs/{id}', params)))
      : fromJob(await data(v1(ws).GET('/v1/fine-tuning/jobs/{id}', params)))
  },
  refetchInterval: (query) => (query.state.data && !isFinal(query.state.data.status) ? often : false),
})

const seriesQuery = (ws: string, id: string) => queryOptions({
  queryKey: ['training-series', ws, id], staleTime: Infinity,
  queryFn: ({ signal }): Promise<Series> => {
    const params = { params: { path: { id } }, signal }
    return id.startsWith('grpo') ? data(v1(ws).GET('/v1/grpo/runs/{id}/series', params)) : data(v1(ws).GET('/v1/fine-tuning/jobs/{id}/series', params))
  },
})

async function eventsAfter(ws: string, id: string, after: number, signal?: AbortSignal): Promise<Event[]> {
  const params = { params: { path: { id }, query: { after, limit: 1000 } }, signal }
  return (id.startsWith('grpo') ? await data(v1(ws).GET('/v1/grpo/runs/{id}/events', params))
    : await data(v1(ws).GET('/v1/fine-tuning/jobs/{id}/events', params))) ?? []
}

/** The curves and messages of a run: read once, and then followed by its events, until it has ended. */
export function useFollowed(run: Row) {
  const ws = useWorkspaceId()
  const live = !isFinal(run.status)
  const series = useQuery(seriesQuery(ws, run.id))
  const key = ['training-tail', ws, run.id]
  const tail = useQuery({
    queryKey: key, enabled: false, staleTime: Infinity,
    queryFn: async ({ signal, client }): Promise<Event[]> => {
      const before = client.getQueryData<Event[]>(key) ?? []
      const more = await eventsAfter(ws, run.id, before.at(-1)?.seq ?? series.data!.seq, signal)
      return more.length ? [...before, ...more] : before
    },
  })
  const { refetch } = tail
  const known = series.data !== undefined
  const wasLive = useRef(live)
  useEffect(() => {
    if (!known) return
    if (!live) {
      if (wasLive.current) void refetch() // what it said at its end
      return
    }
    wasLive.current = true
    const look = setInterval(() => document.hidden || void refetch(), often)
    return () => clearInterval(look)
  }, [live, known, refetch])
  const followed = useMemo(() => series.data && extend(series.data, tail.data ?? []), [series.data, tail.data])
  return { ...series, followed }
}

export const checkpointsQuery = (ws: string, id: string, step: number) => queryOptions({
  queryKey: ['training-checkpoints', ws, id, step],
  queryFn: async ({ signal }) => (await data(v1(ws).GET('/v1/fine-tuning/jobs/{id}/checkpoints', { params: { path: { id } }, signal }))) ?? [],
})

export const versionsQuery = (ws: string, enabled = true) => queryOptions({
  queryKey: ['model-versions', ws], enabled,
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/model-versions', { ...page, signal })),
})

export const toolsQuery = (ws: string) => queryOptions({
  queryKey: ['env-tools', ws],
  queryFn: async ({ signal }) => (await data(v1(ws).GET('/v1/environment/tools', { ...page, signal }))) ?? [],
})

export const datasetsQuery = (ws: string, enabled = true) => queryOptions({
  queryKey: ['datasets', ws], enabled,
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/datasets', { ...page, signal })),
})
