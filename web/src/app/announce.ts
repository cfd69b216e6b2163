// What a screen reader says about a change that is only seen otherwise.
let region: HTMLElement | null = null

export function announce(text: string) {
  if (!region) {
    region = document.createElement('div')
    region.setAttribute('aria-live', 'polite')
    region.setAttribute('role', 'status')
    region.className = 'only-read'
    document.body.append(region)
  }
  region.textContent = ''
  const said = region
  setTimeout(() => (said.textContent = text), 50) // a changed text is said, the same text is not
}
