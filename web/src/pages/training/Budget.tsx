import { useQuery } from '@tanstack/react-query'
import { call } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { money } from '../../format'
import { TextField } from '../../ui/Field'
import { isAmount } from './request'

/** The budget of a run, beside what the wallet has. */
export function Budget({ value, onChange, hint, label = 'Budget, $' }: { value: string; onChange: (value: string) => void; hint: string; label?: string }) {
  const ws = useWorkspaceId()
  const wallet = useQuery({ queryKey: ['wallet', ws], queryFn: ({ signal }) => call<{ free_usd: number }>(ws, 'GET', '/wallet', { signal }) })
  const free = wallet.data?.free_usd
  return (
    <TextField label={label} inputMode="decimal" value={value} onChange={(event) => onChange(event.target.value.trim())}
      error={!isAmount(value) ? 'Must be an amount' : free !== undefined && Number(value) > free ? `The wallet has ${money(free)} free` : undefined}
      hint={`${free === undefined ? '' : `${money(free)} is free. `}${hint}`} />
  )
}
