import { useQuery } from '@tanstack/react-query'
import { data, v1 } from '../../api/client'
import type { components } from '../../api/v1'
import { LineChart } from '../../chart/LineChart'
import { oneOf, text, useQueryState } from '../../query'
import { plural, rate } from '../../format'
import { Badge, Status } from '../../ui/Badge'
import { CurlButton } from '../../ui/Copy'
import { Drawer } from '../../ui/Dialog'
import { Select } from '../../ui/Field'
import { A } from '../../ui/Link'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, SkeletonLines, Time } from '../../ui/Values'
import { calibrationsQuery, isRunning, type Calibration } from './api'
import { historyOf } from './blocks'
import { mark } from './ladder'
import { RunState } from './runs'
import { LabelDrawer } from './Labels'

type Row = components['schemas']['JudgedLabel']

const cells = ['', 'tp', 'fp', 'tn', 'fn', 'failed'] as const
const cellNames: Record<(typeof cells)[number], string> = {
  '': 'Everything', tp: 'Both pass', fp: 'The judge passes, people fail', tn: 'Both fail', fn: 'The judge fails, people pass', failed: 'No verdict',
}
const schema = { run: text(), cell: oneOf(cells, ''), label: text() }

const columns: Column<Calibration>[] = [
  { id: 'when', header: 'Started', width: 'minmax(150px,1fr)', card: 'title', cell: (c) => <Time value={c.created_at} short /> },
  { id: 'status', header: 'Status', width: '100px', card: 'title', cell: (c) => <Status value={c.status} /> },
  { id: 'trust', header: 'Trust', width: '110px', cell: (c) => c.block ? <Status value={c.block.trust} /> : '–' },
  { id: 'se', header: 'Sensitivity', width: '150px', right: true, cell: (c) => withInterval(c.block?.se, c.block?.se_ci) },
  { id: 'sp', header: 'Specificity', width: '150px', right: true, cell: (c) => withInterval(c.block?.sp, c.block?.sp_ci) },
  { id: 'n', header: 'Verdicts', width: '80px', right: true, card: 'none', cell: (c) => c.block?.n ?? '–' },
  { id: 'version', header: 'Version', width: '70px', right: true, card: 'none', cell: (c) => c.criterion_version },
  { id: 'cost', header: 'Cost', width: '90px', right: true, card: 'none', cell: (c) => <Money usd={c.cost_usd} /> },
  { id: 'certificate', header: 'Certificate', width: '100px', card: 'none', cell: (c) => c.certificate_id
    ? <A to={`judges/${c.criterion_id}/certificate`} query={{ id: c.certificate_id }} onClick={(event) => event.stopPropagation()}>read</A> : <span className="text-faint">–</span> },
]

const withInterval = (value?: number | null, ci?: number[] | null) => value === null || value === undefined ? '–'
  : <span>{rate(value)} {ci && <span className="text-xs text-faint">{rate(ci[0]!)}–{rate(ci[1]!)}</span>}</span>

export function Calibrations({ ws, judge }: { ws: string; judge: string }) {
  const [state, set] = useQueryState(schema)
  const list = useQuery(calibrationsQuery(ws, judge))
  if (list.error) return <Refusal error={list.error} retry={() => void list.refetch()} />
  if (!list.data) return <SkeletonLines />
  const runs = list.data.data
  const running = runs.find(isRunning)
  const run = runs.find((one) => one.id === state.run)
  return (
    <>
      {running && <Section title="Running"><RunState run={running} label="Calibration" cancel={() => data(v1(ws).POST('/v1/criteria/{id}/calibrations/{run_id}/cancel', {
        params: { path: { id: judge, run_id: running.id } } }))} /></Section>}
      {runs.length === 0 ? <p className="text-sm text-soft">No calibration yet.</p> : <>
        {runs.some((one) => one.block?.se !== null) && <Section title="Over time">
          <LineChart title="Sensitivity and specificity, with 95 % bands" yFormat={(y) => y.toFixed(2)} {...historyOf(runs)} thresholds={[{ y: mark, label: '0.90' }]}
            summary={`${runs.length} calibrations, each with its interval.`} />
        </Section>}
        <Section title="Runs" aside={plural(runs.length, 'calibration')} flush actions={<CurlButton call={{ path: `/v1/criteria/${judge}/calibrations` }} />}>
          <Table label="Calibrations" keys columns={columns} rows={runs} rowKey={(c) => c.id} onOpen={(c) => set({ run: c.id, cell: '' }, { push: true })} />
        </Section>
      </>}
      {state.run && <Rows ws={ws} judge={judge} run={state.run} status={run?.status} cell={state.cell} setCell={(cell) => set({ cell })}
        open={(label) => set({ label })} onClose={() => set({ run: '', cell: '', label: '' })} />}
      {state.label && <LabelDrawer ws={ws} id={state.label} onClose={() => set({ label: '' })} />}
    </>
  )
}

const rowColumns: Column<Row>[] = [
  { id: 'people', header: 'People', width: '80px', card: 'title', cell: (r) => r.human_verdict ? <Status value={r.human_verdict} /> : <Badge>withdrawn</Badge> },
  { id: 'judge', header: 'Judge', width: '80px', card: 'title', cell: (r) => r.judge_verdict ? <Status value={r.judge_verdict} /> : <Badge tone="warn">none</Badge> },
  { id: 'grade', header: 'Grade', width: '64px', right: true, cell: (r) => r.judge_grade?.toFixed(2) ?? '–' },
  { id: 'half', header: 'Half', width: '80px', card: 'none', cell: (r) => <span className="text-soft">{r.shown ? 'example' : r.in_report_half ? 'report' : 'tuning'}</span> },
  { id: 'critique', header: 'The judge’s critique', width: 'minmax(200px,1fr)', cell: (r) => <span className="text-soft">{r.failure ?? r.critique}</span> },
]

interface RowsProps {
  ws: string; judge: string; run: string; status?: string; cell: (typeof cells)[number]; setCell: (cell: (typeof cells)[number]) => void
  open: (label: string) => void; onClose: () => void
}

/** What the judge said of each label, by cell of the matrix. */
function Rows({ ws, judge, run, cell, setCell, open, onClose }: RowsProps) {
  const judged = cell === 'tp' || cell === 'fp' ? 'pass' : cell === 'tn' || cell === 'fn' ? 'fail' : undefined
  const rows = useQuery({
    queryKey: ['calibration rows', ws, judge, run, judged ?? '', cell === 'failed'],
    queryFn: async ({ signal }) => {
      const all: Row[] = []
      for (let more = true; more && all.length < 2000;) {
        const page = await data(v1(ws).GET('/v1/criteria/{id}/calibrations/{run_id}/rows', {
          params: { path: { id: judge, run_id: run }, query: { limit: 200, offset: all.length, verdict: judged, failed: cell === 'failed' || undefined } }, signal,
        }))
        all.push(...page.data)
        more = page.has_more
      }
      return all
    },
  })
  const people = cell === 'tp' || cell === 'fn' ? 'pass' : cell === 'fp' || cell === 'tn' ? 'fail' : undefined
  const shown = (rows.data ?? []).filter((row) => people === undefined || row.human_verdict === people)
  return (
    <Drawer open wide onClose={onClose} title="Judge and people" text={rows.data && plural(shown.length, 'item')}>
      <div className="mb-3 flex items-center gap-2">
        <Select aria-label="Which" value={cell} onChange={(value) => setCell(value as typeof cell)} options={cells.map((value) => ({ value, label: cellNames[value] }))} />
        <CurlButton call={{ path: `/v1/criteria/${judge}/calibrations/${run}/rows${judged ? `?verdict=${judged}` : cell === 'failed' ? '?failed=true' : ''}` }} />
      </div>
      {rows.error && <Refusal error={rows.error} retry={() => void rows.refetch()} />}
      {rows.isPending && <SkeletonLines />}
      {rows.data && shown.length === 0 && <p className="text-sm text-soft">No item is like that.</p>}
      {shown.length > 0 && <div className="card overflow-hidden"><Table label="Judged labels" columns={rowColumns} rows={shown} rowKey={(r) => r.label_id} onOpen={(r) => open(r.label_id)} /></div>}
    </Drawer>
  )
}
