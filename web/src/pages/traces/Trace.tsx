import { useInfiniteQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { useEffect, useMemo } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { Waterfall } from '../../chart/Waterfall'
import { count, duration, plural } from '../../format'
import { useKeys } from '../../keys'
import { text, useQueryState } from '../../query'
import { Button } from '../../ui/Button'
import { CurlButton, Id } from '../../ui/Copy'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Facts, Money, SkeletonLines, Stat, Stats, Time } from '../../ui/Values'
import { Exchange } from '../logs/Exchange'
import { Grade } from '../logs/Grade'
import { repeated, spans } from './spans'

const schema = { step: text(), with: text(), step2: text() }

/** A run: its steps as a tree with their times, the step that is chosen, and a grade for the whole. Two stand side by side. */
export default function Trace() {
  const { trace } = useParams({ strict: false }) as { trace: string }
  const [state, set] = useQueryState(schema)
  const compared = state.with !== ''
  return (
    <Page title={compared ? 'Two runs' : 'Run'} above={<A to="traces">← All runs</A>} aside={!compared && <Id value={trace} />} actions={<>
      {compared && <Button onClick={() => set({ with: '', step2: '' }, { push: true })}>Show the first alone</Button>}
      <CurlButton small={false} call={{ path: `/v1/traces/${encodeURIComponent(trace)}` }} />
    </>}>
      <div className={compared ? 'grid items-start gap-4 lg:grid-cols-2' : ''}>
        <Run trace={trace} step={state.step} onStep={(step) => set({ step })} keys named={compared} />
        {compared && <Run trace={state.with} step={state.step2} onStep={(step2) => set({ step2 })} named />}
      </div>
    </Page>
  )
}

const pageSize = 200

function useTrace(ws: string, trace: string) {
  const got = useInfiniteQuery({
    queryKey: ['trace', ws, trace], initialPageParam: 0,
    queryFn: ({ signal, pageParam }) => data(v1(ws).GET('/v1/traces/{trace_id}', {
      params: { path: { trace_id: trace }, query: { limit: pageSize, offset: pageParam } }, signal,
    })),
    getNextPageParam: (last, pages) => (last.has_more ? pages.reduce((n, page) => n + page.data.length, 0) : undefined),
  })
  const steps = useMemo(() => got.data?.pages.flatMap((page) => page.data) ?? [], [got.data])
  return { ...got, run: got.data?.pages[0], steps }
}

interface RunProps { trace: string; step: string; onStep: (id: string) => void; keys?: boolean; named?: boolean }

function Run({ trace, step, onStep, keys, named }: RunProps) {
  const ws = useWorkspaceId()
  const { run, steps, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useTrace(ws, trace)
  const drawn = useMemo(() => spans(steps), [steps])
  const at = Math.max(0, steps.findIndex((log) => log.id === step.split('/')[0]))
  const chosen = steps[at]
  const choose = (i: number) => {
    const next = steps[Math.max(0, Math.min(steps.length - 1, i))]
    if (next) onStep(next.id)
  }
  useKeys('Run', [
    { keys: 'j', label: 'Next step', run: () => choose(at + 1) },
    { keys: 'k', label: 'Previous step', run: () => choose(at - 1) },
  ], Boolean(keys))
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage && steps.length < 2000) void fetchNextPage()
  }, [hasNextPage, isFetchingNextPage, steps.length, fetchNextPage])

  if (error) return <Refusal error={error} retry={() => void refetch()} />
  if (!run || !chosen) return <SkeletonLines lines={10} />
  return (
    <div className="min-w-0">
      <Stats>
        <Stat label="Steps" value={count(run.steps)} hint={steps.length < run.steps ? `${count(steps.length)} read` : undefined} />
        <Stat label="Duration" value={duration(new Date(run.last_at).getTime() - new Date(run.first_at).getTime())} hint={<Time value={run.first_at} short />} />
        <Stat label="Tokens" value={count(run.prompt_tokens + run.completion_tokens)} hint={`${count(run.completion_tokens)} out`} />
        <Stat label="Cost" value={<Money usd={run.cost_usd} />} />
      </Stats>
      <div className="mt-4" />
      {named && <p className="mb-2"><Id value={trace} /></p>}
      <Section title="Steps" aside={keys ? 'arrows move and fold' : undefined} flush actions={hasNextPage && (
        <Button small busy={isFetchingNextPage} onClick={() => void fetchNextPage()}>Read more steps</Button>
      )}>
        <Waterfall label={`Steps of ${trace}`} spans={drawn} chosen={step.includes('/') ? step : chosen.id} onChoose={onStep} height="40vh" />
      </Section>
      <Section title="Grade the whole run" aside={plural(run.steps, 'step')}><Grade key={trace} subject={{ trace_id: trace }} keys={Boolean(keys)} /></Section>
      <Section title={`Step ${at + 1}`} aside={<A to="logs" query={{ row: chosen.id }}>open in Logs</A>}>
        <Facts rows={[
          ['Model', chosen.model], ['Time', <Time key="t" value={chosen.created_at} />], ['Latency', duration(chosen.latency_ms)],
          ['Tokens', `${count(chosen.prompt_tokens)} in, ${count(chosen.completion_tokens)} out`], ['Cost', <Money key="c" usd={chosen.cost_usd} />],
          ['End', chosen.finish_reason],
        ]} />
        <div className="mt-3" />
        <Exchange key={chosen.id} messages={chosen.messages} response={chosen.response} tools={chosen.tools} from={repeated(chosen, steps[at - 1])} />
      </Section>
    </div>
  )
}
