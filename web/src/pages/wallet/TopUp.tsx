import { useMutation, useQuery } from '@tanstack/react-query'
import { useRef, useState } from 'react'
import { call } from '../../api/client'
import { useWorkspace, useWorkspaceId } from '../../api/session'
import { money } from '../../format'
import { useAllowed } from '../../ui/Allowed'
import { Status } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { Dialog } from '../../ui/Dialog'
import { Snippet } from '../../ui/EmptyState'
import { TextField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Table, type Column } from '../../ui/Table'
import { Money, SkeletonLines, Time } from '../../ui/Values'
import type { List } from '../settings/shapes'
import type { Topup } from './shapes'
import { useBilling } from './Wallet'

const amounts = ['20', '50', '100', '500']

/** Tops the wallet up by card, where that is configured; else says that the operator credits it. */
export function TopUp({ onClose }: { onClose: () => void }) {
  const workspace = useWorkspace()
  const ws = workspace.id
  const billing = useBilling()
  const [amount, setAmount] = useState('50')
  const key = useRef(crypto.randomUUID()) // a second click begins no second payment
  const begin = useMutation({
    mutationFn: () => call<Topup>(ws, 'POST', '/topups', { body: { amount_usd: Number(amount) }, idempotencyKey: `${key.current}-${amount}` }),
    onSuccess: (made) => {
      if (made.url) location.assign(made.url)
    },
  })
  const b = billing.data
  const n = Number(amount)
  const wrong = !/^\d+(\.\d{1,2})?$/.test(amount) ? 'Must be an amount in whole cents'
    : b && (n < b.min_usd || n > b.max_usd) ? `From ${money(b.min_usd)} to ${money(b.max_usd)}` : undefined
  return (
    <Dialog open onClose={onClose} title="Top up the wallet" footer={<>
      <Button onClick={onClose}>Close</Button>
      {b?.card_payments && <Button look="primary" disabled={Boolean(wrong)} busy={begin.isPending || begin.isSuccess} onClick={() => begin.mutate()}>Pay {wrong ? '' : money(n)}</Button>}
    </>}>
      {billing.error && <Refusal error={billing.error} />}
      {!b ? <SkeletonLines lines={2} /> : b.card_payments ? (
        <form className="space-y-3" onSubmit={(event) => {
          event.preventDefault()
          if (!wrong) begin.mutate()
        }}>
          <TextField label="Amount, $" inputMode="decimal" autoFocus value={amount} error={wrong} onChange={(event) => setAmount(event.target.value.trim())} />
          <div className="flex gap-2">{amounts.map((value) => <Button key={value} small onClick={() => setAmount(value)}>${value}</Button>)}</div>
          <p className="text-sm text-soft">You pay at Stripe; this server never sees the card. The wallet is credited when the payment is confirmed, not when the page
            comes back.{b.owed_usd > 0 && ` ${money(b.owed_usd)} of it pays what is owed.`}</p>
          {begin.error && <Refusal error={begin.error} />}
        </form>
      ) : (
        <div className="text-sm text-soft">
          <p>Card payments are not configured on this server: its operator credits the wallet. Send them this line:</p>
          <Snippet text={`sovereign admin wallet topup --workspace ${ws} --amount-usd 50`} />
          <p className="mt-2">The credit is in the ledger and in the audit trail, with the operator as the actor.</p>
        </div>
      )}
    </Dialog>
  )
}

const columns: Column<Topup>[] = [
  { id: 'at', header: 'Begun', width: '160px', cell: (row) => <Time value={row.created_at} short /> },
  { id: 'state', header: 'State', width: '110px', cell: (row) => <Status value={row.state} />, card: 'title' },
  { id: 'amount', header: 'Amount', width: '110px', right: true, cell: (row) => <Money usd={row.amount_usd} />, card: 'title' },
  { id: 'paid', header: 'Paid', width: '160px', cell: (row) => <Time value={row.paid_at} short /> },
  { id: 'back', header: 'Taken back', width: '110px', right: true, cell: (row) => row.taken_back_usd ? <Money usd={row.taken_back_usd} /> : <span className="text-faint">–</span> },
  { id: 'note', header: 'Note', width: 'minmax(120px,1fr)', cell: (row) => row.error ?? (row.state === 'pending' && row.url ? <a className="link" href={row.url}>go on paying</a> : ''), card: 'none' },
]

/** Card payments of the workspace. Credits of the operator are in the ledger. */
export function Topups() {
  const ws = useWorkspaceId()
  const { may, why } = useAllowed()
  const list = useQuery({
    queryKey: ['topups', ws], enabled: may, queryFn: ({ signal }) => call<List<Topup>>(ws, 'GET', '/topups', { query: { limit: 200 }, signal }),
    refetchInterval: (query) => (query.state.data?.data.some((row) => row.state === 'pending' || row.state === 'processing') ? 5000 : false),
  })
  return (
    <Section title="Card payments" flush aside="credits by the operator are in the ledger">
      {!may && <p className="px-3.5 py-3 text-sm text-soft">{why}.</p>}
      {list.error && <div className="p-3"><Refusal error={list.error} retry={() => void list.refetch()} /></div>}
      {may && list.isPending && <div className="p-3"><SkeletonLines lines={2} /></div>}
      {list.data?.data.length === 0 && (
        <p className="px-3.5 py-3 text-sm text-soft">None yet. “Top up” says whether this server takes cards; otherwise its operator credits the wallet.</p>
      )}
      {list.data && list.data.data.length > 0 && <Table label="Card payments" columns={columns} rows={list.data.data} rowKey={(row) => row.id} />}
    </Section>
  )
}
