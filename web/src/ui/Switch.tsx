import { Switch as Base } from '@base-ui/react/switch'
import { useId, type ReactNode } from 'react'

interface Props { label: ReactNode; hint?: ReactNode; on: boolean; onChange: (on: boolean) => void; disabled?: boolean }

export function Switch({ label, hint, on, onChange, disabled }: Props) {
  const id = useId()
  return (
    <div className="flex items-start gap-2.5">
      <Base.Root checked={on} onCheckedChange={onChange} disabled={disabled} aria-labelledby={id}
        className="mt-0.5 flex h-4.5 w-8 shrink-0 rounded-full border border-edge bg-raised p-px transition-colors
          data-checked:border-accent data-checked:bg-accent data-disabled:opacity-50">
        <Base.Thumb className="size-3.5 rounded-full bg-edge transition-transform data-checked:translate-x-3.5
          data-checked:bg-on-accent" />
      </Base.Root>
      <span className="text-sm" id={id}>{label}{hint && <span className="block text-xs text-faint">{hint}</span>}</span>
    </div>
  )
}
