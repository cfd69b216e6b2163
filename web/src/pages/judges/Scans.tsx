import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { curl } from '../../api/curl'
import type { components } from '../../api/v1'
import { useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { oneOf, text, useQueryState } from '../../query'
import { count, percent, plural } from '../../format'
import { Badge, Status } from '../../ui/Badge'
import { Button, buttonClass } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { EmptyState } from '../../ui/EmptyState'
import { Select, TextField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, SkeletonLines, Time } from '../../ui/Values'
import { scansQuery, type Judge, type Scan } from './api'
import { RatesView } from './Rates'
import { notYours, RunState, Start } from './runs'

type Judged = components['schemas']['Judged']

const schema = { scan: text(), verdict: oneOf(['', 'pass', 'fail'], '') }

const columns: Column<Scan>[] = [
  { id: 'when', header: 'Started', width: 'minmax(150px,1fr)', card: 'title', cell: (s) => <Time value={s.created_at} short /> },
  { id: 'status', header: 'Status', width: '100px', card: 'title', cell: (s) => <Status value={s.status} /> },
  { id: 'rate', header: 'Passes', width: '90px', right: true, cell: (s) => s.result?.rate != null ? percent(s.result.rate) : '–' },
  { id: 'corrected', header: 'Corrected', width: '160px', right: true, cell: (s) => s.result?.corrected_rate != null
    ? <span>{percent(s.result.corrected_rate)} {s.result.corrected_rate_ci && <span className="text-xs text-faint">{s.result.corrected_rate_ci.map((x) => percent(x, 0)).join('–')}</span>}</span> : <span className="text-faint">no</span> },
  { id: 'n', header: 'Judged', width: '100px', right: true, card: 'none', cell: (s) => `${count(s.progress.done)} / ${count(s.progress.total)}` },
  { id: 'pool', header: 'Of', width: '90px', right: true, card: 'none', cell: (s) => count(s.pool) },
  { id: 'cost', header: 'Cost', width: '90px', right: true, card: 'none', cell: (s) => <Money usd={s.cost_usd} /> },
]

/** Scans: a random sample of logs, judged. */
export function Scans({ ws, judge }: { ws: string; judge: Judge }) {
  const { manages } = useWorkspace()
  const [state, set] = useQueryState(schema)
  const [starting, setStarting] = useState(false)
  const list = useQuery(scansQuery(ws, judge.id))
  if (list.error) return <Refusal error={list.error} retry={() => void list.refetch()} />
  if (!list.data) return <SkeletonLines />
  const scans = list.data.data
  const chosen = scans.find((scan) => scan.id === state.scan) ?? scans[0]
  const start = <Button look="primary" disabled={!manages} title={manages ? undefined : notYours} onClick={() => setStarting(true)}>Scan logs…</Button>
  return (
    <>
      {scans.length === 0 ? (
        <EmptyState title="No scan yet" text="A scan has the judge grade a random sample of logs, and says how much passes: corrected for the judge’s known errors where it has a certificate."
          snippet={curl({ method: 'POST', path: `/v1/criteria/${judge.id}/scans`, body: { sample_size: 200 } })} action={start} />
      ) : <>
        <Section title="Scans" flush actions={<><CurlButton call={{ path: `/v1/criteria/${judge.id}/scans` }} />{start}</>}>
          <Table label="Scans" keys columns={columns} rows={scans} rowKey={(s) => s.id} active={scans.findIndex((scan) => scan.id === chosen?.id)}
            onOpen={(s) => set({ scan: s.id })} onActive={(i) => set({ scan: scans[i]?.id ?? '' })} />
        </Section>
        {chosen && <Detail key={chosen.id} ws={ws} judge={judge.id} scan={chosen} verdict={state.verdict} setVerdict={(verdict) => set({ verdict })} />}
      </>}
      {starting && <StartScan ws={ws} judge={judge} onClose={() => setStarting(false)} />}
    </>
  )
}

const rowColumns: Column<Judged>[] = [
  { id: 'verdict', header: 'Verdict', width: '90px', card: 'title', cell: (r) => r.verdict ? <Status value={r.verdict} /> : <Badge tone="warn">none</Badge> },
  { id: 'grade', header: 'Grade', width: '70px', right: true, card: 'title', cell: (r) => r.grade?.toFixed(2) ?? '–' },
  { id: 'critique', header: 'Critique', width: 'minmax(240px,1fr)', cell: (r) => <span className="text-soft">{r.failure ?? r.critique}</span> },
  { id: 'log', header: 'Exchange', width: '90px', card: 'none', cell: (r) => <A to="logs" query={{ row: r.log_id }}>open</A> },
]

interface DetailProps { ws: string; judge: string; scan: Scan; verdict: '' | 'pass' | 'fail'; setVerdict: (verdict: '' | 'pass' | 'fail') => void }

function Detail({ ws, judge, scan, verdict, setVerdict }: DetailProps) {
  const rows = useQuery({
    queryKey: ['scan rows', ws, judge, scan.id, verdict, scan.progress.done],
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria/{id}/scans/{run_id}/rows', {
      params: { path: { id: judge, run_id: scan.id }, query: { limit: 200, verdict: verdict || undefined } }, signal,
    })),
  })
  return (
    <div className="grid items-start gap-x-4 lg:grid-cols-[minmax(0,2fr)_minmax(0,3fr)]">
      <div className="min-w-0"><Section title="Result" aside={<Time value={scan.created_at} relative />}>
        <RunState run={scan} label="Scan" cancel={() => data(v1(ws).POST('/v1/criteria/{id}/scans/{run_id}/cancel', { params: { path: { id: judge, run_id: scan.id } } }))} />
        {scan.result && <div className="mt-3"><RatesView rates={scan.result} judge={judge} /></div>}
        {scan.status === 'DONE' && <div className="mt-3 flex flex-wrap gap-2">
          <A to="review" query={{ new: 'true', criterion: judge, kind: 'scan', scan: scan.id }} className={buttonClass()}>Have people grade it…</A>
          <A to="review" query={{ new: 'true', criterion: judge, kind: 'uncertain', scan: scan.id }} className={buttonClass()}>The least sure…</A>
        </div>}
      </Section></div>
      <div className="min-w-0"><Section title="Rows" aside={rows.data && plural(rows.data.data.length, 'row')} flush actions={<>
        <Select aria-label="Verdict" value={verdict} onChange={(value) => setVerdict(value as typeof verdict)} options={[{ value: '', label: 'Any verdict' }, 'pass', 'fail']} />
        <CurlButton call={{ path: `/v1/criteria/${judge}/scans/${scan.id}/rows${verdict && `?verdict=${verdict}`}` }} /></>}>
        {rows.error && <Refusal error={rows.error} />}
        {rows.isPending && <div className="p-3"><SkeletonLines /></div>}
        {rows.data && <Table label="Judged exchanges" columns={rowColumns} rows={rows.data.data} rowKey={(r) => r.log_id} height="420px" />}
      </Section></div>
    </div>
  )
}

function StartScan({ ws, judge, onClose }: { ws: string; judge: Judge; onClose: () => void }) {
  const queries = useQueryClient()
  const { tell } = useToast()
  const [size, setSize] = useState('200')
  const [tag, setTag] = useState('')
  const [model, setModel] = useState('')
  const sample_size = Math.min(5000, Math.max(1, Number(size) || 200))
  const filters = { ...(tag && { tag }), ...(model && { model }) }
  const body = { sample_size, ...(Object.keys(filters).length > 0 && { filters }) }
  return (
    <Start title={`Scan with ${judge.name}`} action="Scan" onClose={onClose} text="The judge grades a random sample of logged exchanges."
      inquiry={{ kind: 'scan', criterion_id: judge.id, ...body }} call={{ path: `/v1/criteria/${judge.id}/scans`, body }}
      run={async (max) => {
        await data(v1(ws).POST('/v1/criteria/{id}/scans', { params: { path: { id: judge.id } }, body: { ...body, ...(max !== undefined && { max_cost_usd: max }) } }))
        tell('Scan started')
        await queries.invalidateQueries({ queryKey: ['scans', ws, judge.id] })
      }}>
      <div className="grid gap-3 sm:grid-cols-3">
        <TextField label="Exchanges" type="number" min={1} max={5000} required value={size} onChange={(e) => setSize(e.target.value)} />
        <TextField label="Tag" placeholder="any" value={tag} onChange={(e) => setTag(e.target.value)} />
        <TextField label="Model" placeholder="any" value={model} onChange={(e) => setModel(e.target.value)} />
      </div>
    </Start>
  )
}
