import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { DownloadIcon, PrinterIcon } from 'lucide-react'
import type { ReactNode } from 'react'
import { call } from '../../api/client'
import { useWorkspace } from '../../api/session'
import { count, exactMoney } from '../../format'
import { Button, buttonClass } from '../../ui/Button'
import { A } from '../../ui/Link'
import { Page } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { SkeletonLines, Time } from '../../ui/Values'
import type { Statement as Shape } from './shapes'

/** The statement of a month, for the screen and for paper. */
export default function Statement() {
  const ws = useWorkspace()
  const { month } = useParams({ strict: false }) as { month: string }
  const statement = useQuery({
    queryKey: ['statement', ws.id, month], queryFn: ({ signal }) => call<Shape>(ws.id, 'GET', `/statements/${encodeURIComponent(month)}`, { signal }),
  })
  const s = statement.data
  return (
    <Page title={`Statement ${month}`} above={<A to="wallet" query={{ tab: 'statements' }} className="link no-print">Wallet</A>}
      aside={<span>{ws.name}{s && !s.final && ' · the month is not over'}</span>} actions={<>
        <a className={buttonClass()} download href={`/dashboard/api/w/${encodeURIComponent(ws.id)}/statements/${encodeURIComponent(month)}/export`}><DownloadIcon size={14} aria-hidden /> CSV</a>
        <Button look="primary" icon={<PrinterIcon size={14} />} onClick={() => print()}>Print</Button>
      </>}>
      {statement.error && <Refusal error={statement.error} retry={() => void statement.refetch()} />}
      {statement.isPending && <SkeletonLines lines={8} />}
      {s && <Sheet of={s} workspace={ws.id} />}
    </Page>
  )
}

const amount = (usd: number) => <span className="whitespace-nowrap">{exactMoney(usd)}</span>

function Sheet({ of, workspace }: { of: Shape; workspace: string }) {
  return (
    <article className="card max-w-4xl space-y-5 p-5 text-sm print:border-0 print:p-0">
      <p className="text-soft">Workspace {workspace}. From <Time value={of.from} /> to <Time value={of.to} />; amounts in US dollars, as the ledger has them.</p>
      <Rows caption="Summary" head={['', 'Amount']} rows={[
        ['Opening balance', amount(of.opening_balance_usd)], ['Top-ups', amount(of.topups_usd)], ['Usage', amount(-of.usage_usd)],
        ['Refunds and disputes', amount(of.refunds_usd)], [<b key="c">Closing balance</b>, <b key="v">{amount(of.closing_balance_usd)}</b>],
      ]} />
      {of.transfers.length > 0 && (
        <Rows caption="Top-ups and refunds" head={['When', 'Kind', 'Memo', 'Amount']} rows={of.transfers.map((row) => [<Time value={row.at} />, row.kind, row.memo || '–', amount(row.amount_usd)])} />
      )}
      <Rows caption="Usage by model and key" head={['Model', 'Key', 'Requests', 'Input', 'Output', 'Cost', 'Charged']} rows={of.usage.map((row) => [
        row.others ? `${count(row.others)} others` : row.model, row.key_id || '–', count(row.requests), count(row.input_tokens), count(row.output_tokens), amount(row.cost_usd), amount(row.charged_usd),
      ])} />
      {of.usage.length === 0 && <p className="text-soft">Nothing was used in this month.</p>}
    </article>
  )
}

function Rows({ caption, head, rows }: { caption: string; head: string[]; rows: ReactNode[][] }) {
  return (
    <div className="overflow-x-auto" tabIndex={0} role="region" aria-label={caption}>
      <table className="w-full text-left">
        <caption className="mb-1 text-left font-semibold">{caption}</caption>
        <thead className="text-xs text-soft"><tr>{head.map((name, i) => name === '' ? <td key={i} /> : <th key={i} scope="col" className={`py-1 pr-3 font-medium ${i > 0 && i === head.length - 1 ? 'text-right' : ''}`}>{name}</th>)}</tr></thead>
        <tbody>
          {rows.map((row, i) => (
            <tr key={i} className="border-t border-line">{row.map((cell, n) => <td key={n} className={`max-w-64 truncate py-1 pr-3 ${n > 0 && n === row.length - 1 ? 'text-right' : ''}`}>{cell}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
