import { XIcon } from 'lucide-react'
import type { Ref } from 'react'
import { count, time } from '../../format'
import { Button } from '../../ui/Button'
import { Select } from '../../ui/Field'
import { facetNames, isFiltered, ranges, type FacetName, type LogState } from './filters'
import type { Facets, FacetValue } from './rows'

const names: Record<FacetName, string> = { model: 'Model', tag: 'Tag', segment: 'Segment', finish_reason: 'Finish', cache_hit: 'Cache' }

const valuesOf = (facets: Facets | undefined, name: FacetName): FacetValue[] => {
  if (!facets) return []
  return { model: facets.models, tag: facets.tags, segment: facets.segments, finish_reason: facets.finish_reasons, cache_hit: facets.cached }[name]
}

interface Props { state: LogState; set: (change: Partial<LogState>, how?: { push?: boolean }) => void; facets?: Facets; onApproach: () => void; ref?: Ref<HTMLDivElement> }

/** The filters, with how many rows each would leave. */
export function FilterBar({ state, set, facets, onApproach, ref }: Props) {
  const exact = state.start !== '' || state.end !== ''
  return (
    <div ref={ref} onPointerEnter={onApproach} onFocus={onApproach} role="search" aria-label="Filters" className="no-print mb-3 flex flex-wrap items-center gap-2 max-sm:grid max-sm:grid-cols-2">
      <Select aria-label="Time range" value={exact ? 'exact' : state.range} 
        options={[...ranges, ...(exact ? [{ value: 'exact', label: 'Chosen range' }] : [])]}
        onChange={(range) => range !== 'exact' && set({ range: range as LogState['range'], start: '', end: '' }, { push: true })} />
      {facetNames.map((name) => {
        const known = valuesOf(facets, name).filter((v) => v.value !== '')
        const chosen = state[name]
        const options = chosen && !known.some((v) => v.value === chosen) ? [{ value: chosen, count: -1 }, ...known] : known
        return (
          <Select key={name} aria-label={names[name]} value={chosen} className={`max-w-44 max-sm:max-w-none ${chosen ? 'border-accent text-accent' : ''}`}
            options={[{ value: '', label: `${names[name]}: any` }, ...options.map((v) => ({
              value: v.value, label: `${name === 'cache_hit' ? (v.value === 'true' ? 'Cached' : 'Not cached') : v.value}${v.count >= 0 ? ` (${count(v.count)})` : ''}`,
            }))]}
            onChange={(value) => set({ [name]: value } as Partial<LogState>, { push: true })} />
        )
      })}
      {exact && <span className="text-xs text-soft">{state.start && time(new Date(state.start))} to {state.end ? time(new Date(state.end)) : 'now'}</span>}
      {isFiltered(state) && (
        <Button look="quiet" icon={<XIcon size={14} />} onClick={() => set({
          model: '', tag: '', segment: '', finish_reason: '', cache_hit: '', range: 'all', start: '', end: '',
        }, { push: true })}>Clear <kbd className="kbd">x</kbd></Button>
      )}
    </div>
  )
}
