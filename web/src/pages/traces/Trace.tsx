import { Page } from '../../ui/Page'

export default function Trace() {
  return <Page title="Trace">…</Page>
}
