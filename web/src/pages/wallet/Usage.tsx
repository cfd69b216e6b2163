import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { DownloadIcon } from 'lucide-react'
import { call, withQuery } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { lastDays, StackedBars } from '../../chart/StackedBars'
import { count, money, plural, short } from '../../format'
import { oneOf, text, useQueryState } from '../../query'
import { Button, buttonClass } from '../../ui/Button'
import { Field, Select } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, SkeletonLines, Stat, Stats } from '../../ui/Values'
import { dayAfter, daysBetween, lasts } from './balance'
import type { Series } from './shapes'

const schema = {
  by: oneOf(['model', 'key', 'tag', 'none'] as const, 'model'), from: text(), to: text(), model: text(), key: text(), tag: text(),
  show: oneOf(['cost_usd', 'requests', 'output_tokens'] as const, 'cost_usd'),
}

type Group = Series['groups'][number]

/** What was used and what it cost, by day and by model, key or tag. */
export function Usage({ free }: { free?: number }) {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const [state, set] = useQueryState(schema)
  const month = lastDays(30)
  const [from, to] = [state.from || month[0]!, state.to || month[29]!]
  const query = { from, to, by: state.by, model: state.model, key: state.key, tag: state.tag, top: 20 }
  const series = useQuery({
    queryKey: ['usage', ws, query], placeholderData: keepPreviousData,
    queryFn: ({ signal }) => call<Series>(ws, 'GET', '/usage/series', { query, signal }),
  })
  const named = (group: string, rest?: boolean) => rest ? 'others' : series.data?.key_names?.[group] ?? (group || `(no ${state.by})`)
  const days = daysBetween(from, to)
  const left = series.data && free !== undefined ? lasts(free, series.data.totals.charged_usd, days.length) : undefined
  const filters = (['model', 'key', 'tag'] as const).filter((name) => state[name])
  const open = (group: Group) => state.by === 'model' ? set({ model: group.group, by: 'key' }, { push: true }) : state.by === 'key' ? set({ key: group.group, by: 'model' }, { push: true })
    : state.by === 'tag' ? void navigate({ to: `/w/${ws}/logs` as never, search: { tag: group.group, start: `${from}T00:00:00Z`, end: dayAfter(to) } as never }) : undefined
  return (
    <Section title="Usage and cost" aside="days are UTC" actions={<>
      <Select aria-label="Group by" value={state.by} onChange={(by) => set({ by: by as typeof state.by })}
        options={[{ value: 'model', label: 'By model' }, { value: 'key', label: 'By key' }, { value: 'tag', label: 'By tag' }, { value: 'none', label: 'All together' }]} />
      <Select aria-label="Show" value={state.show} onChange={(show) => set({ show: show as typeof state.show })}
        options={[{ value: 'cost_usd', label: 'Cost' }, { value: 'requests', label: 'Requests' }, { value: 'output_tokens', label: 'Output tokens' }]} />
      <a className={buttonClass('plain')} download href={withQuery(`/dashboard/api/w/${encodeURIComponent(ws)}/usage/export`, query)}><DownloadIcon size={14} aria-hidden /> CSV</a>
    </>}>
      <div className="mb-3 flex flex-wrap items-end gap-2">
        <Field label="From">{(props) => <input {...props} type="date" className="control" value={from} max={to} onChange={(event) => event.target.value && set({ from: event.target.value })} />}</Field>
        <Field label="To">{(props) => <input {...props} type="date" className="control" value={to} min={from} onChange={(event) => event.target.value && set({ to: event.target.value })} />}</Field>
        <Button look="quiet" onClick={() => set({ from: lastDays(2)[0]!, to: lastDays(2)[0]! })}>Yesterday</Button>
        {[7, 30, 90].map((n) => <Button key={n} look="quiet" onClick={() => set({ from: n === 30 ? '' : lastDays(n)[0]!, to: '' })}>{n} days</Button>)}
        {filters.map((name) => <Button key={name} onClick={() => set({ [name]: '' })}>{name} {name === 'key' ? named(state.key) : state[name]} ×</Button>)}
      </div>
      {series.error && <Refusal error={series.error} retry={() => void series.refetch()} />}
      {series.isPending && <SkeletonLines lines={6} />}
      {series.data && <>
        <Stats>
          <Stat label="Cost" value={<Money usd={series.data.totals.cost_usd} />} hint={<><Money usd={series.data.totals.charged_usd} /> charged to the wallet</>} />
          <Stat label="Requests" value={count(series.data.totals.requests)} hint={plural(series.data.totals.errors, 'error')} to="logs" query={{ start: `${from}T00:00:00Z`, end: dayAfter(to) }} />
          <Stat label="Input tokens" value={short(series.data.totals.input_tokens)} hint={`${short(series.data.totals.cached_input_tokens)} cached`} />
          <Stat label="Output tokens" value={short(series.data.totals.output_tokens)} />
          {left !== undefined && filters.length === 0 && <Stat label="The wallet lasts" value={left > 999 ? 'years' : plural(Math.floor(left), 'day')} hint="at the pace of these days" />}
        </Stats>
        <div className="mt-3">
          <StackedBars title={`${{ cost_usd: 'Cost', requests: 'Requests', output_tokens: 'Output tokens' }[state.show]} of each day`} days={days}
            format={state.show === 'cost_usd' ? money : short} values={series.data.points.map((p) => ({ day: p.day, group: named(p.group, p.rest), value: p[state.show] }))}
            onOpen={(day) => set({ from: day, to: day }, { push: true })} />
        </div>
        {series.data.groups.length > 0 && state.by !== 'none' && (
          <div className="-mx-3.5 mt-3"><Table label={`By ${state.by}`} columns={columns(state.by, named)} rows={series.data.groups} rowKey={(group) => group.group + group.rest}
            onOpen={(group) => !group.rest && group.group && open(group)} />
            {state.by === 'tag' && series.data.groups.some((group) => group.group === '' && !group.rest) && (
              <p className="px-3.5 pt-2 text-xs text-faint">Without a tag are requests that sent no X-Service-Tag, and what judges, evals and reward sessions asked.</p>
            )}</div>
        )}
        {series.data.totals.requests === 0 && <p className="mt-3 text-sm text-soft">Nothing was used in these days. A first request is in <A to="">Home</A>.</p>}
      </>}
    </Section>
  )
}

const columns = (by: string, named: (group: string, rest?: boolean) => string): Column<Group>[] => [
  { id: 'group', header: by[0]!.toUpperCase() + by.slice(1), width: 'minmax(140px,2fr)', cell: (row) => named(row.group, row.rest), card: 'title' },
  { id: 'cost', header: 'Cost', width: '110px', right: true, cell: (row) => <Money usd={row.cost_usd} />, card: 'title' },
  { id: 'charged', header: 'Charged', width: '110px', right: true, cell: (row) => <Money usd={row.charged_usd} />, card: 'none' },
  { id: 'requests', header: 'Requests', width: '100px', right: true, named: true, cell: (row) => count(row.requests) },
  { id: 'errors', header: 'Errors', width: '80px', right: true, cell: (row) => count(row.errors), card: 'none' },
  { id: 'input', header: 'Input tokens', width: '110px', right: true, named: true, cell: (row) => short(row.input_tokens) },
  { id: 'output', header: 'Output tokens', width: '110px', right: true, named: true, cell: (row) => short(row.output_tokens) },
]
