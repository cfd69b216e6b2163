import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { Field, SelectField, TextField } from '../../ui/Field'
import { short } from '../../format'
import type { LogFilters, RunFilters, Source, SourceKind } from './api'
import { cleanSource, describePreview, kinds, readIds } from './source'

export { describeSource } from './source'

interface Props { ws: string; source: Source; onChange: (source: Source) => void; criterion: string }

/** Where the items come from. */
export function SourceFields({ ws, source, onChange, criterion }: Props) {
  const [ids, setIds] = useState('')
  const filters = (change: LogFilters) => onChange({ ...source, filters: { ...source.filters, ...change } })
  const runs = (change: RunFilters) => onChange({ ...source, runs: { ...source.runs, ...change } })
  const needsJudge = kinds.find((kind) => kind.value === source.kind)?.needsJudge
  return (
    <>
      <div className="grid gap-3 sm:grid-cols-[1fr_8rem]">
        <SelectField label="Items" value={source.kind} onChange={(kind) => onChange({ ...source, kind: kind as SourceKind })} options={kinds}
          error={needsJudge && !criterion ? 'Choose a judge first: it is what the judge said' : undefined} />
        {source.kind !== 'ids' && <TextField label="At most" type="number" required min={1} max={5000} value={source.n ?? 100}
          onChange={(e) => onChange({ ...source, n: Number(e.target.value) || undefined })} />}
      </div>
      {source.kind === 'logs' && <div className="grid gap-3 sm:grid-cols-2">
        <TextField label="Model" placeholder="any" value={source.filters?.model ?? ''} onChange={(e) => filters({ model: e.target.value })} />
        <TextField label="Tag" placeholder="any" value={source.filters?.tag ?? ''} onChange={(e) => filters({ tag: e.target.value })} />
        <Day label="From" value={source.filters?.start} onChange={(start) => filters({ start })} />
        <Day label="Before" value={source.filters?.end} onChange={(end) => filters({ end })} />
      </div>}
      {source.kind === 'traces' && <div className="grid gap-3 sm:grid-cols-2">
        <TextField label="A step has the tag" placeholder="any" value={source.runs?.tag ?? ''} onChange={(e) => runs({ tag: e.target.value })} />
        <TextField label="A step by the model" placeholder="any" value={source.runs?.model ?? ''} onChange={(e) => runs({ model: e.target.value })} />
        <TextField label="Steps, at least" type="number" min={1} max={200} value={source.runs?.min_steps ?? ''} onChange={(e) => runs({ min_steps: Number(e.target.value) || undefined })} />
        <TextField label="Steps, at most" type="number" min={1} max={200} value={source.runs?.max_steps ?? ''} onChange={(e) => runs({ max_steps: Number(e.target.value) || undefined })} />
      </div>}
      {(source.kind === 'scan' || source.kind === 'uncertain') && criterion && <Scans ws={ws} criterion={criterion} source={source} onChange={onChange} />}
      {source.kind === 'ids' && (
        <Field label="Request ids and run ids" hint="Separated by spaces, commas or lines; up to 5,000">
          {(props) => <textarea {...props} rows={4} className="control w-full font-mono" value={ids} onChange={(e) => {
            setIds(e.target.value)
            onChange({ kind: 'ids', ...readIds(e.target.value) })
          }} />}
        </Field>
      )}
    </>
  )
}

function Day({ label, value, onChange }: { label: string; value?: string; onChange: (value: string | undefined) => void }) {
  return <TextField label={label} type="date" value={value?.slice(0, 10) ?? ''} onChange={(e) => onChange(e.target.value ? `${e.target.value}T00:00:00Z` : undefined)} />
}

function Scans({ ws, criterion, source, onChange }: Props) {
  const scans = useScans(ws, criterion)
  const options = (scans.data?.data ?? []).filter((scan) => scan.status === 'DONE')
    .map((scan) => ({ value: scan.id, label: `${scan.created_at.slice(0, 16).replace('T', ' ')} · ${short(scan.result?.n ?? 0)} judged` }))
  const first = source.kind === 'scan' ? { value: '', label: options.length ? 'Choose a scan' : 'No finished scan yet' } : { value: '', label: 'Monitored traffic' }
  return (
    <div className="grid gap-3 sm:grid-cols-[1fr_8rem]">
      <SelectField label="Scan" value={source.scan_id ?? ''} onChange={(scan_id) => onChange({ ...source, scan_id })} options={[first, ...options]} />
      {source.kind === 'scan' && <SelectField label="Verdict" value={source.verdict ?? ''} onChange={(verdict) => onChange({ ...source, verdict: (verdict || undefined) as Source['verdict'] })}
        options={[{ value: '', label: 'any' }, 'pass', 'fail']} />}
    </div>
  )
}

const useScans = (ws: string, criterion: string, on = true) => useQuery({
  queryKey: ['scans', ws, criterion], enabled: on && criterion !== '',
  queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria/{id}/scans', { params: { path: { id: criterion }, query: { limit: 50 } }, signal })),
})

/** How many items there would be, in words. It is counted while the form is filled in. */
export function usePreview(ws: string, source: Source, criterion: string): string {
  const clean = cleanSource(source)
  const scans = useScans(ws, criterion, source.kind === 'scan' || source.kind === 'uncertain')
  const logs = useQuery({
    queryKey: ['logs', ws, 'count', clean.filters ?? {}], enabled: source.kind === 'logs',
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/logs', { params: { query: { ...clean.filters, limit: 1 } }, signal })),
  })
  const report = useQuery({
    queryKey: ['adjudication', ws, criterion], enabled: source.kind === 'disagreements' && criterion !== '',
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/criteria/{id}/adjudication', { params: { path: { id: criterion } }, signal })),
  })
  if (source.kind === 'logs') return logs.error ? 'The logs cannot be counted now.' : describePreview(source, logs.data?.total)
  if (source.kind === 'disagreements') {
    return report.error ? 'The judge has no calibration yet, so there is nothing to disagree with.' : describePreview(source, report.data?.remaining_disagreements)
  }
  if (source.kind === 'scan') {
    const scan = scans.data?.data.find((one) => one.id === source.scan_id)
    if (!scan?.result) return 'Choose a finished scan.'
    const { n, passes } = scan.result
    return describePreview(source, source.verdict === 'pass' ? passes : source.verdict === 'fail' ? n - passes : n)
  }
  return describePreview(source, null)
}

