import { Page } from '../../ui/Page'

export default function Logs() {
  return <Page title="Logs">…</Page>
}
