import { useQuery } from '@tanstack/react-query'
import { PlusIcon, XIcon } from 'lucide-react'
import { useId, useState, type ReactNode } from 'react'
import { data, v1 } from '../api/client'
import { useWorkspaceId } from '../api/session'
import type { components } from '../api/v1'
import { Button, IconButton } from './Button'
import { Field } from './Field'

export type Model = components['schemas']['ModelEntry']

/** The models that can be called, and the workspace's aliases. */
export function useModels() {
  const ws = useWorkspaceId()
  return useQuery({
    queryKey: ['models', ws], staleTime: 60_000,
    queryFn: async ({ signal }) => (await data(v1(ws).GET('/v1/models', { signal }))).data,
  })
}

/** Models of the catalog alone: what an alias, an eval or a judge may name. */
export const catalogOf = (models: Model[] | undefined, kind = 'chat'): Model[] =>
  (models ?? []).filter((model) => model.target_model === undefined && model.kind === kind)

/** A model's price in a few words. */
export function priceText(model: Model | undefined): string {
  if (!model) return ''
  const { input_per_mtok_usd: input, output_per_mtok_usd: output } = model.price
  const dollars = (usd: number) => `$${Number.isInteger(usd * 100) ? usd.toFixed(2) : usd}`
  return `${dollars(input)} in, ${dollars(output)} out, for a million tokens${model.simulated ? ' · simulated' : ''}`
}

interface Props {
  label: ReactNode
  value: string
  onChange: (id: string) => void
  models: Model[]
  hint?: ReactNode
  error?: ReactNode
  /** What may be left out. */
  optional?: boolean
  className?: string
  disabled?: boolean
}

/** Chooses one of many models by typing; its price stands below. */
export function ModelPicker({ label, value, onChange, models, hint, error, optional, className, disabled }: Props) {
  const list = useId()
  const chosen = models.find((model) => model.id === value)
  const unknown = value !== '' && !chosen && models.length > 0
  return (
    <Field label={label} className={className} error={error ?? (unknown ? 'No model of the catalog has this id' : undefined)}
      hint={chosen ? priceText(chosen) : hint ?? (optional ? 'None' : 'Type a part of its name')}>
      {(props) => <>
        <input {...props} className="control w-full" list={list} value={value} autoComplete="off" spellCheck={false} disabled={disabled}
          onChange={(event) => onChange(event.target.value.trim())} />
        <datalist id={list}>
          {models.map((model) => <option key={model.id} value={model.id}>{priceText(model)}</option>)}
        </datalist>
      </>}
    </Field>
  )
}

/** Chooses several models, in an order. */
export function ModelsPicker({ label, value, onChange, models, hint, most = 8 }:
  Omit<Props, 'value' | 'onChange'> & { value: string[]; onChange: (ids: string[]) => void; most?: number }) {
  const [draft, setDraft] = useState('')
  const open = models.filter((model) => !value.includes(model.id))
  const fits = open.some((model) => model.id === draft)
  const add = () => {
    if (!fits) return
    onChange([...value, draft])
    setDraft('')
  }
  return (
    <div>
      {value.length > 0 && (
        <ul className="mb-1.5 flex flex-wrap gap-1.5" aria-label="Chosen models">
          {value.map((id) => (
            <li key={id} className="inline-flex max-w-full items-center rounded-md bg-raised pl-2 text-sm">
              <span className="truncate" title={priceText(models.find((model) => model.id === id))}>{id}</span>
              <IconButton label={`Leave out ${id}`} className="h-6 w-6" onClick={() => onChange(value.filter((other) => other !== id))}>
                <XIcon size={12} />
              </IconButton>
            </li>
          ))}
        </ul>
      )}
      {value.length < most && (
        <div className="flex items-start gap-2" onKeyDown={(event) => {
          if (event.key !== 'Enter' || !fits) return
          event.preventDefault()
          add()
        }}>
          <ModelPicker className="min-w-0 flex-1" label={label} value={draft} onChange={setDraft} models={open} hint={hint} />
          <Button className="mt-6" icon={<PlusIcon size={14} />} disabled={!fits} onClick={add}>Add</Button>
        </div>
      )}
    </div>
  )
}
