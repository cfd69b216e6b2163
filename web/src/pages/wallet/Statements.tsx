import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { Badge } from '../../ui/Badge'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, SkeletonLines } from '../../ui/Values'
import type { List } from '../settings/shapes'
import type { Month } from './shapes'

const columns: Column<Month>[] = [
  { id: 'month', header: 'Month', width: 'minmax(110px,1fr)', cell: (row) => <span className="font-medium">{row.month}{!row.final && <> <Badge>so far</Badge></>}</span>, card: 'title' },
  { id: 'opening', header: 'Opening', width: '110px', right: true, cell: (row) => <Money usd={row.opening_balance_usd} />, card: 'none' },
  { id: 'topups', header: 'Top-ups', width: '110px', right: true, cell: (row) => <Money usd={row.topups_usd} /> },
  { id: 'usage', header: 'Usage', width: '110px', right: true, cell: (row) => <Money usd={row.usage_usd} /> },
  { id: 'refunds', header: 'Refunds', width: '110px', right: true, cell: (row) => <Money usd={row.refunds_usd} />, card: 'none' },
  { id: 'closing', header: 'Closing', width: '110px', right: true, cell: (row) => <Money usd={row.closing_balance_usd} />, card: 'title' },
]

/** The months of the wallet. Each reconciles with the ledger to the last digit. */
export function Statements() {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const list = useQuery({
    queryKey: ['statements', ws], queryFn: ({ signal }) => call<List<Month>>(ws, 'GET', '/statements', { query: { limit: 120 }, signal }),
  })
  return (
    <Section title="Monthly statements" flush aside="months are UTC; open one to print it">
      {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
      {list.isPending && <div className="p-3"><SkeletonLines lines={2} /></div>}
      {list.data?.data.length === 0 && <p className="px-3.5 py-3 text-sm text-soft">The first month with a transfer comes here.</p>}
      {list.data && list.data.data.length > 0 && (
        <Table label="Monthly statements" columns={columns} rows={list.data.data} rowKey={(row) => row.month}
          onOpen={(row) => void navigate({ to: `/w/${ws}/wallet/statements/${row.month}` as never })} />
      )}
    </Section>
  )
}
