import { useQuery } from '@tanstack/react-query'
import { ShieldCheckIcon } from 'lucide-react'
import { useState } from 'react'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { count } from '../../format'
import { text, useQueryState } from '../../query'
import { Badge } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { Id } from '../../ui/Copy'
import { Drawer } from '../../ui/Dialog'
import { Snippet } from '../../ui/EmptyState'
import { Select } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Facts, Money, SkeletonLines, Time } from '../../ui/Values'
import { JsonView } from '../../ui/Viewer'
import type { List } from '../settings/shapes'
import type { Proof, Transfer } from './shapes'

const columns: Column<Transfer>[] = [
  { id: 'at', header: 'When', width: '160px', cell: (row) => <Time value={row.at} short /> },
  { id: 'kind', header: 'Kind', width: '120px', cell: (row) => kindName(row.kind), card: 'title' },
  { id: 'memo', header: 'Memo', width: 'minmax(140px,2fr)', cell: (row) => row.memo || <span className="text-faint">–</span> },
  { id: 'id', header: 'Transfer', width: 'minmax(160px,1.4fr)', cell: (row) => <code className="font-mono text-xs">{row.id}</code>, card: 'none' },
  {
    id: 'amount', header: 'Amount', width: '120px', right: true, card: 'title',
    cell: (row) => <Money usd={row.amount_usd} className={row.amount_usd > 0 ? 'text-pass' : undefined} />,
  },
]

/** A kind of transfer, as people say it. */
const kindName = (kind: string) => kind === 'topup' ? 'top-up' : kind.replaceAll('_', ' ')

const schema = { kind: text(), before: text(), transfer: text() }

/** Every transfer of the wallet. Its lines sum to zero, and a hash chain covers them. */
export function Ledger() {
  const ws = useWorkspaceId()
  const [state, set] = useQueryState(schema)
  const [proving, setProving] = useState(false)
  const list = useQuery({
    queryKey: ['ledger', ws, state.kind, state.before],
    queryFn: ({ signal }) => call<List<Transfer>>(ws, 'GET', '/ledger', { query: { kind: state.kind, before: state.before, limit: state.kind || state.before ? 100 : 500 }, signal }),
  })
  const rows = list.data?.data ?? []
  const open = rows.find((row) => row.id === state.transfer)
  const kinds = [...new Set([...rows.map((row) => row.kind), ...(state.kind ? [state.kind] : [])])].sort()
  return (
    <Section title="Ledger" flush aside="double entry, appended to and never changed" actions={<>
      <Select aria-label="Kind" value={state.kind} onChange={(kind) => set({ kind, before: '' }, { push: true })} options={[{ value: '', label: 'Every kind' }, ...kinds.map((value) => ({ value, label: kindName(value) }))]} />
      <Button icon={<ShieldCheckIcon size={14} />} onClick={() => setProving(true)}>Prove it</Button>
    </>}>
      {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
      {list.isPending && <div className="p-3"><SkeletonLines /></div>}
      {list.data && rows.length === 0 && <p className="px-3.5 py-4 text-sm text-soft">No money has moved yet.</p>}
      {rows.length > 0 && (
        <Table label="Ledger" columns={columns} rows={rows} rowKey={(row) => row.id} height={rows.length > 25 ? '60vh' : undefined}
          onOpen={(row) => set({ transfer: row.id }, { push: true })} />
      )}
      {(list.data?.has_more || state.before) && (
        <div className="flex justify-center gap-2 p-2">
          {state.before && <Button onClick={() => set({ before: '' })}>Newest</Button>}
          {list.data?.has_more && <Button onClick={() => set({ before: rows[rows.length - 1]!.id }, { push: true })}>Older</Button>}
        </div>
      )}
      <Drawer open={Boolean(open)} onClose={() => set({ transfer: '' })} title={open ? kindName(open.kind) : ''}>
        {open && <>
          <Facts rows={[['Transfer', <Id value={open.id} />], ['When', <Time value={open.at} />], ['Memo', open.memo || '–'], ['Into the wallet', <Money usd={open.amount_usd} />]]} />
          <h3 className="mt-4 mb-1 text-sm font-medium">Lines, which sum to zero</h3>
          <Facts rows={open.lines.map((line) => [line.account, <Money usd={line.amount_usd} />])} />
        </>}
      </Drawer>
      {proving && <Prove onClose={() => setProving(false)} />}
    </Section>
  )
}

function Prove({ onClose }: { onClose: () => void }) {
  const ws = useWorkspaceId()
  const proof = useQuery({ queryKey: ['ledger-proof', ws], staleTime: 0, queryFn: ({ signal }) => call<Proof>(ws, 'GET', '/ledger/proof', { signal }) })
  const p = proof.data
  return (
    <Drawer open onClose={onClose} title="The ledger’s proof" text="Made now, from the rows themselves.">
      {proof.error && <Refusal error={proof.error} retry={() => void proof.refetch()} />}
      {proof.isPending && <SkeletonLines />}
      {p && (
        <div className="space-y-4">
          <p className="text-sm">{p.ok ? <Badge tone="pass">whole</Badge> : <Badge tone="fail">broken</Badge>} {p.ok
            ? 'Every balance is the sum of its entries, and all entries sum to zero.' : 'A balance is not the sum of its entries. Tell the operator.'}</p>
          <Facts rows={[['Entries', count(p.entries)], ['Their sum', <Money usd={p.sum_usd} />],
            ...p.accounts.map((one) => [one.account, <><Money usd={one.balance_usd} />, and its entries sum to <Money usd={one.entries_usd} /></>] as [string, React.ReactNode])]} />
          <p className="text-sm text-soft">The heads below are signed. Keep one elsewhere: a head that was kept shows every later change of what it covers, also one by the operator.</p>
          <JsonView label="Signed heads" value={p.heads} />
          <Snippet text={`# head.json is one element of the list above\ncurl -sS ${location.origin}/.well-known/jwks.json > jwks.json\nsovereign verify head.json --jwks jwks.json`} />
        </div>
      )}
    </Drawer>
  )
}
