import { keyCaps, useKeyGroups } from '../keys'
import { Dialog } from '../ui/Dialog'

/** Every key that works on this page, from the registry. */
export default function KeyHelp({ onClose }: { onClose: () => void }) {
  const groups = [...useKeyGroups()].reverse().filter((group) => group.keys.length > 0)
  return (
    <Dialog open onClose={onClose} title="Keyboard">
      <div className="space-y-4">
        {groups.map((group, i) => (
          <section key={i}>
            <h3 className="mb-1 text-xs font-medium text-soft">{group.name}</h3>
            <dl>
              {group.keys.map((key) => (
                <div key={key.keys} className="flex items-center justify-between gap-4 py-0.5 text-sm">
                  <dt>{key.label}</dt>
                  <dd className="flex gap-1">{keyCaps(key.keys).map((cap, n) => <kbd key={n} className="kbd">{cap}</kbd>)}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
        <p className="text-xs text-faint">Tab and Shift-Tab reach everything; F6 reaches messages.</p>
      </div>
    </Dialog>
  )
}
