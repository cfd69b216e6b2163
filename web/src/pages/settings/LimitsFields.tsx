import { Field, SelectField, TextField } from '../../ui/Field'
import { checkLimits, type LimitsForm } from './limits'

interface Props { form: LimitsForm; onChange: (form: LimitsForm) => void; ofKey?: boolean; disabled?: boolean }

const labels = {
  requests_per_minute: 'Requests in any 60 seconds', tokens_per_minute: 'Tokens in any 60 seconds', concurrency: 'Requests at once',
  budget_day_usd: 'Budget of a UTC day, $', budget_month_usd: 'Budget of a UTC month, $',
} as const

/** Every limit that a key or a workspace can have. Empty is no limit. */
export function LimitsFields({ form, onChange, ofKey, disabled }: Props) {
  const wrong = checkLimits(form)
  const set = (change: Partial<LimitsForm>) => onChange({ ...form, ...change })
  return (
    <div className="space-y-3">
      <div className="grid gap-3 sm:grid-cols-2">
        {(Object.keys(labels) as (keyof typeof labels)[]).map((name) => (
          <TextField key={name} label={labels[name]} inputMode="decimal" placeholder="no limit" value={form[name]} disabled={disabled}
            error={wrong[name]} onChange={(event) => set({ [name]: event.target.value.trim() })} />
        ))}
        {ofKey && (
          <TextField label="Expires" type="datetime-local" value={form.expires_at} disabled={disabled}
            hint={form.expires_at ? 'Your time; from then on it is refused' : 'Never, when it is empty'}
            onChange={(event) => set({ expires_at: event.target.value })} />
        )}
      </div>
      {ofKey && <>
        <SelectField label="What it may call" value={form.scope} disabled={disabled} onChange={(scope) => set({ scope: scope as LimitsForm['scope'] })}
          options={[
            { value: 'full', label: 'Everything that its person may' },
            { value: 'inference', label: 'Inference, the list of models and the setup status only' },
          ]} />
        <Field label="Models" hint="One on a line; a * at the end stands for any. All, when it is empty.">
          {(props) => <textarea {...props} rows={2} className="control w-full font-mono" spellCheck={false} value={form.models}
            disabled={disabled} onChange={(event) => set({ models: event.target.value })} />}
        </Field>
        <Field label="Addresses" hint="One on a line, such as 10.0.0.0/8. Any, when it is empty.">
          {(props) => <textarea {...props} rows={2} className="control w-full font-mono" spellCheck={false} value={form.allowed_addresses}
            disabled={disabled} onChange={(event) => set({ allowed_addresses: event.target.value })} />}
        </Field>
      </>}
    </div>
  )
}
