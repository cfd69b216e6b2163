import { Dialog as Base } from '@base-ui/react/dialog'
import { Nav } from './Nav'

/** The navigation on a phone: a sheet from below. */
export default function Sheet({ onClose, openPalette, openHelp }: { onClose: () => void; openPalette: () => void; openHelp: () => void }) {
  const then = (run: () => void) => () => {
    onClose()
    run()
  }
  return (
    <Base.Root open onOpenChange={(open) => open || onClose()}>
      <Base.Portal>
        <Base.Backdrop className="fixed inset-0 z-40 bg-shade" />
        <Base.Popup className="fixed inset-x-0 bottom-0 z-50 flex max-h-[85dvh] flex-col rounded-t-lg border-t border-line bg-surface outline-none">
          <Base.Title className="only-read">Pages</Base.Title>
          <Nav openPalette={then(openPalette)} openHelp={then(openHelp)} />
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  )
}
