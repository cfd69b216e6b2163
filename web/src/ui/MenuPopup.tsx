import { Menu as Base } from '@base-ui/react/menu'
import { CheckIcon } from 'lucide-react'
import type { MenuProps } from './Menu'

export default function MenuPopup({ trigger, groups, side = 'bottom', align = 'start' }: MenuProps) {
  return (
    <Base.Root defaultOpen>
      <Base.Trigger render={trigger} />
      <Base.Portal>
        <Base.Positioner className="z-60" side={side} align={align} sideOffset={4}>
          <Base.Popup className="popup min-w-44 max-w-[90vw] py-1">
            {groups.map((group, i) => (
              <Base.Group key={i} className={i > 0 ? 'mt-1 border-t border-line pt-1' : undefined}>
                {group.heading && (
                  <Base.GroupLabel className="px-3 py-1 text-xs text-faint">{group.heading}</Base.GroupLabel>
                )}
                {group.items.map((item, n) => (
                  <Base.Item key={n} disabled={item.disabled} onClick={item.run}
                    className={`flex cursor-default items-center gap-2 px-3 py-1.5 text-sm outline-none
                      data-disabled:opacity-50 data-highlighted:bg-hover ${item.danger ? 'text-fail' : ''}`}>
                    {item.icon && <span className="text-soft">{item.icon}</span>}
                    <span className="min-w-0 flex-1 truncate">{item.label}</span>
                    {item.hint && <span className="text-xs text-faint">{item.hint}</span>}
                    {item.chosen && <CheckIcon size={14} aria-label="chosen" />}
                  </Base.Item>
                ))}
              </Base.Group>
            ))}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  )
}
