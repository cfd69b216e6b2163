import { count, short } from '../../format'
import { SelectField } from '../../ui/Field'
import type { Model } from './api'

/** What a trainable model is, in a few words. */
export const modelWords = (model: Model): string =>
  `${model.id} · ${model.parameters > 0 ? `${short(model.parameters)} parameters` : 'size not known'}${model.random ? ' · random weights' : ''}`

/** Chooses a base model that some worker trains by a method. */
export function ModelField({ models, value, method, onChange }: { models: Model[]; value: string; method?: string; onChange: (id: string) => void }) {
  const fit = models.filter((model) => !method || model.methods.includes(method))
  const chosen = models.find((model) => model.id === value)
  return (
    <SelectField label="Base model" value={value} onChange={onChange}
      hint={chosen ? <>{chosen.random && 'Its weights are random: it is for trying out, and knows nothing. '}Reads {count(chosen.context_window)} tokens; a worker trains it on {chosen.gpu_types.join(', ')}.</>
        : fit.length === 0 ? `No worker of the last day trains with ${method}` : 'What workers of the last day can train'}
      options={[{ value: '', label: 'Choose one' }, ...fit.map((model) => ({ value: model.id, label: modelWords(model) }))]} />
  )
}
