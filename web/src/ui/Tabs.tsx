import { Tabs as Base } from '@base-ui/react/tabs'
import type { ReactNode } from 'react'

interface Props {
  value: string
  onChange: (value: string) => void
  tabs: { value: string; label: ReactNode; content: ReactNode }[]
  label: string
}

/** Tabs whose choice belongs into the query string: give the value and take the change. */
export function Tabs({ value, onChange, tabs, label }: Props) {
  return (
    <Base.Root value={value} onValueChange={(next) => onChange(String(next))}>
      <Base.List aria-label={label} className="mb-4 flex gap-1 overflow-x-auto border-b border-line">
        {tabs.map((tab) => (
          <Base.Tab key={tab.value} value={tab.value} className="-mb-px border-b-2 border-transparent px-2.5 py-1.5 text-sm
            whitespace-nowrap text-soft hover:text-text data-active:border-accent data-active:font-medium data-active:text-text">
            {tab.label}
          </Base.Tab>
        ))}
      </Base.List>
      {tabs.map((tab) => <Base.Panel key={tab.value} value={tab.value} className="outline-none">{tab.content}</Base.Panel>)}
    </Base.Root>
  )
}
