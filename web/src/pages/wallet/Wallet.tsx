import { useQuery } from '@tanstack/react-query'
import { WalletIcon } from 'lucide-react'
import { useState } from 'react'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useCommands } from '../../app/commands'
import { LineChart } from '../../chart/LineChart'
import { money, plural } from '../../format'
import { oneOf, text, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Button } from '../../ui/Button'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Tabs } from '../../ui/Tabs'
import { Money, SkeletonLines, Stat, Stats } from '../../ui/Values'
import type { List } from '../settings/shapes'
import { balances, holdLink } from './balance'
import { Ledger } from './Ledger'
import type { Billing, Transfer, Wallet as Shape } from './shapes'
import { Statements } from './Statements'
import { TopUp, Topups } from './TopUp'
import { Usage } from './Usage'

const schema = { tab: oneOf(['usage', 'ledger', 'statements', 'topups'] as const, 'usage'), topup: text() }

/** How the wallet can be topped up: read when somebody is about to. */
export function useBilling() {
  const ws = useWorkspaceId()
  return useQuery({ queryKey: ['billing', ws], queryFn: ({ signal }) => call<Billing>(ws, 'GET', '/billing', { signal }) })
}

/** The money: what is free, held and spent, what it was spent on, and the ledger behind it. */
export default function Wallet() {
  const ws = useWorkspaceId()
  const [state, set] = useQueryState(schema)
  const { may, why } = useAllowed()
  const [adding, setAdding] = useState(state.topup === 'new')
  const wallet = useQuery({ queryKey: ['wallet', ws], refetchInterval: 15_000, queryFn: ({ signal }) => call<Shape>(ws, 'GET', '/wallet', { signal }) })
  useCommands([{ id: 'wallet topup', label: 'Top up the wallet', run: () => setAdding(true) }])
  const w = wallet.data
  return (
    <Page title="Wallet" actions={<Button look="primary" icon={<WalletIcon size={14} />} disabled={!may} title={why} onClick={() => setAdding(true)}>Top up</Button>}>
      {wallet.error && <Refusal error={wallet.error} retry={() => void wallet.refetch()} />}
      {state.topup.startsWith('topup_') && (
        <p role="status" className="mb-3 rounded-md border border-line bg-raised px-3 py-2 text-sm">The payment page is closed. The wallet is credited when the payment is confirmed, usually within
          seconds; the list of top-ups says when.</p>
      )}
      {w && w.owed_usd > 0 && (
        <p role="alert" className="mb-3 rounded-md border border-warn/50 bg-warn-ground px-3 py-2 text-sm">
          <Money usd={w.owed_usd} className="font-medium" /> is owed: payments were refunded or disputed after the money was spent. The next top-up pays it first.</p>
      )}
      <Stats>
        <Stat label="Free" loading={!w} value={<Money usd={w?.free_usd} />} hint="can be spent now" />
        <Stat label="Held" loading={!w} value={<Money usd={w?.held_usd} />} hint={w && `${plural(w.holds.length, 'hold')}, and running requests`} />
        <Stat label="Balance" loading={!w} value={<Money usd={w?.balance_usd} />} to="wallet" query={{ tab: 'ledger' }} hint="free and held" />
        <Stat label="Spent" loading={!w} value={<Money usd={w?.spent_usd} />} to="wallet" query={{ tab: 'usage' }} hint="since the beginning" />
      </Stats>
      <div className="mt-4 grid gap-x-4 lg:grid-cols-2">
        <Balance now={w?.balance_usd} />
        <Holds wallet={w} />
      </div>
      <Tabs label="Money" value={state.tab} onChange={(tab) => set({ tab: tab as typeof state.tab }, { push: true })} tabs={[
        { value: 'usage', label: 'Usage and cost', content: <Usage free={w?.free_usd} /> },
        { value: 'ledger', label: 'Ledger', content: <Ledger /> },
        { value: 'statements', label: 'Statements', content: <Statements /> },
        { value: 'topups', label: 'Top-ups', content: <Topups /> },
      ]} />
      {adding && <TopUp onClose={() => {
        setAdding(false)
        if (state.topup === 'new') set({ topup: '' })
      }} />}
    </Page>
  )
}

function Balance({ now }: { now?: number }) {
  const ws = useWorkspaceId()
  const ledger = useQuery({
    queryKey: ['ledger', ws, '', ''], queryFn: ({ signal }) => call<List<Transfer>>(ws, 'GET', '/ledger', { query: { limit: 500 }, signal }),
  })
  const points = now === undefined || !ledger.data ? [] : balances(now, ledger.data.data)
  return (
    <Section title="Balance">
      {points.length < 2 ? <p className="text-sm text-soft">{ledger.data ? 'No money has moved yet.' : 'Reading the ledger…'}</p>
        : <LineChart title="Balance after each transfer" xTime height={180} yFormat={(y) => money(y)} series={[{ name: 'balance', points }]}
          summary={`The balance is ${money(now!)} after ${plural(ledger.data!.data.length, 'transfer')}.`} />}
    </Section>
  )
}

const holdNames = new Map([['reward', 'Reward session'], ['eval', 'Eval'], ['calibration', 'Calibration'], ['dedicated_endpoint', 'Dedicated endpoint']])

function Holds({ wallet }: { wallet?: Shape }) {
  return (
    <Section title="Held" aside="set aside until it is spent or comes back" flush>
      {!wallet ? <div className="p-3"><SkeletonLines lines={2} /></div> : (
        <ul>
          {wallet.holds.map((hold) => {
            const to = holdLink(hold)
            return (
              <li key={hold.id} className="flex flex-wrap items-center gap-x-3 border-b border-line px-3.5 py-2 text-sm">
                <span className="min-w-0 flex-1 truncate">{holdNames.get(hold.kind) ?? hold.kind.replaceAll('_', ' ')} {to ? <A to={to} className="link font-mono text-xs">{hold.id}</A> : hold.id}</span>
                <span className="text-xs text-soft"><Money usd={hold.spent_usd} /> spent of <Money usd={hold.amount_usd} /></span>
                <Money usd={hold.left_usd} className="font-medium" />
              </li>
            )
          })}
          <li className="flex items-center gap-3 border-b border-line px-3.5 py-2 text-sm">
            <span className="flex-1">Running requests<span className="text-xs text-faint"> · each holds the most that it can cost</span></span><Money usd={wallet.running_usd} className="font-medium" /></li>
          {wallet.abandoned_unpaid_usd > 0 && (
            <li className="px-3.5 py-2 text-xs text-soft">Requests whose callers left cost <Money usd={wallet.abandoned_unpaid_usd} /> in the last day and were not charged;
              up to <Money usd={wallet.abandoned_allowance_usd} /> is allowed.</li>
          )}
        </ul>
      )}
    </Section>
  )
}
