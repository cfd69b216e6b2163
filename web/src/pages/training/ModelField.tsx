import { useQuery } from '@tanstack/react-query'
import { useWorkspaceId } from '../../api/session'
import { count, short } from '../../format'
import { SelectField } from '../../ui/Field'
import { versionsQuery, type Model } from './api'

/** What a trainable model is, in a few words. */
export const modelWords = (model: Model): string =>
  `${model.id} · ${model.parameters > 0 ? `${short(model.parameters)} parameters` : 'size not known'}${model.random ? ' · random weights' : ''}`

interface Props {
  models: Model[]
  value: string
  method?: string
  /** Whether it may begin from a model that was trained here. */
  versions?: boolean
  onChange: (id: string) => void
}

/** Chooses a model that some worker trains by a method. */
export function ModelField({ models, value, method, versions, onChange }: Props) {
  const fit = models.filter((model) => !method || model.methods.includes(method))
  const trained = useQuery(versionsQuery(useWorkspaceId(), Boolean(versions)))
  const offered = versions ? (trained.data?.data ?? []).filter((one) => fit.some((model) => model.id === one.base_model)) : []
  const from = offered.find((one) => one.id === value)
  const chosen = models.find((model) => model.id === (from?.base_model ?? value))
  return (
    <SelectField label="Base model" value={value} onChange={onChange}
      hint={chosen ? <>{chosen.random && (from ? 'Its base was random. ' : 'Its weights are random: it is for trying out, and knows nothing. ')}Reads {count(chosen.context_window)} tokens; a worker trains it on {chosen.gpu_types.join(', ')}.</>
        : fit.length === 0 ? `No worker of the last day trains ${method ? `with ${method}` : 'anything'}` : 'What workers of the last day can train'}
      options={[{ value: '', label: 'Choose one' }, ...fit.map((model) => ({ value: model.id, label: modelWords(model) })),
        ...offered.map((one) => ({ value: one.id, label: `${one.name} · trained here, from ${one.base_model}` }))]} />
  )
}
