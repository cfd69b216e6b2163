import { Page } from '../../ui/Page'

export default function Traces() {
  return <Page title="Traces">…</Page>
}
