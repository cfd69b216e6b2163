import { useMutation } from '@tanstack/react-query'
import { useState } from 'react'
import { dash, data } from '../../api/client'
import { useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { Button } from '../../ui/Button'
import { SelectField } from '../../ui/Field'
import { Refusal } from '../../ui/Refusal'

const kept = [
  'Chat requests that finished: messages, tools and the answer, with model, tokens, cost, latency, tag and trace.',
  'Rows are deleted after the time that you choose; turning logging off hides them at once.',
]
const never = [
  'Credentials: keys, tokens and passwords are replaced by [redacted] before a row is written anywhere.',
  'Errors and broken streams, embeddings, rankings, and requests that were sent with X-Service-Log: off.',
]

/** Logging is off: what it would keep, what it never keeps, and the switch. */
export function Consent({ onOn }: { onOn: () => void }) {
  const workspace = useWorkspace()
  const { tell } = useToast()
  const [days, setDays] = useState('30')
  const turnOn = useMutation({
    mutationFn: () => data(dash.PATCH('/dashboard/api/w/{workspace}/settings', {
      params: { path: { workspace: workspace.id } }, body: { log_retention_days: Number(days) },
    })),
    onSuccess: () => {
      tell('Logging is on', { text: `Rows are kept for ${days} days.` })
      onOn()
    },
  })
  return (
    <section className="card mx-auto my-4 max-w-2xl px-5 py-5">
      <h2 className="text-lg font-semibold">Logging is off</h2>
      <p className="mt-1 text-sm text-soft">With logs you can read what your models did, freeze datasets, grade, and calibrate judges. Nothing is logged without your consent.</p>
      <div className="mt-4 grid gap-4 text-sm sm:grid-cols-2">
        <List title="What is kept" items={kept} />
        <List title="What never is" items={never} />
      </div>
      <div className="mt-5 flex flex-wrap items-end gap-3">
        <SelectField label="Keep rows for" value={days} onChange={setDays} className="w-36"
          options={['7', '30', '90'].map((value) => ({ value, label: `${value} days` }))} />
        <Button look="primary" disabled={!workspace.manages} busy={turnOn.isPending} onClick={() => turnOn.mutate()}>Turn logging on</Button>
        {!workspace.manages && <p className="text-sm text-soft">An owner or admin can turn it on.</p>}
      </div>
      {turnOn.error && <div className="mt-3"><Refusal error={turnOn.error} /></div>}
    </section>
  )
}

const List = ({ title, items }: { title: string; items: string[] }) => (
  <div><h3 className="mb-1 font-medium">{title}</h3><ul className="list-disc space-y-1 pl-4 text-soft">{items.map((item) => <li key={item}>{item}</li>)}</ul></div>
)
