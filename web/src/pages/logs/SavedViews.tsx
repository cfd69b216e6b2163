import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useLocation, useNavigate } from '@tanstack/react-router'
import { BookmarkIcon } from 'lucide-react'
import { useState } from 'react'
import { call } from '../../api/client'
import { useSession, useWorkspace } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { parseSearch } from '../../query'
import { Button } from '../../ui/Button'
import { Dialog } from '../../ui/Dialog'
import { TextField } from '../../ui/Field'
import { Menu } from '../../ui/Menu'
import { Refusal } from '../../ui/Refusal'
import { Switch } from '../../ui/Switch'

interface View { id: string; page: string; name: string; query: string; shared: boolean; owner_id: string }

/** Saved views of a page: its query string under a name, for oneself or for all members. */
export function SavedViews({ page, saving, onSave }: { page: string; saving: boolean; onSave: (on: boolean) => void }) {
  const ws = useWorkspace()
  const me = useSession().data?.user_id
  const queries = useQueryClient()
  const navigate = useNavigate()
  const { tell, fail } = useToast()
  const { searchStr } = useLocation()
  const [name, setName] = useState('')
  const [shared, setShared] = useState(false)
  const [wanted, setWanted] = useState(false)
  const key = ['views', ws.id, page]
  const views = useQuery({
    queryKey: key, enabled: wanted, staleTime: 60_000,
    queryFn: ({ signal }) => call<{ data: View[] }>(ws.id, 'GET', '/views', { query: { page }, signal }),
  })
  const again = () => void queries.invalidateQueries({ queryKey: key })
  const query = new URLSearchParams(Object.entries(parseSearch(searchStr)).filter(([k]) => k !== 'row')).toString()
  const create = (view: { name: string; query: string; shared: boolean }) =>
    call<View>(ws.id, 'POST', '/views', { body: { page, name: view.name, query: view.query, shared: view.shared } })
  const save = useMutation({
    mutationFn: () => create({ name: name.trim(), query, shared }),
    onSuccess: () => {
      again()
      tell('View saved')
      setName('')
      onSave(false)
    },
  })
  const remove = (view: View) => call(ws.id, 'DELETE', `/views/${view.id}`).then(() => {
    again()
    tell(`Deleted: ${view.name}`, { undo: () => create(view).then(again) })
  }).catch(fail)
  const all = views.data?.data ?? []
  const mine = all.filter((view) => view.owner_id === me || ws.manages)
  return (
    <>
      <span onPointerEnter={() => setWanted(true)} onFocus={() => setWanted(true)}>
        <Menu align="end" trigger={<Button icon={<BookmarkIcon size={14} />}>Views</Button>} groups={[
          { heading: all.length ? 'Open' : 'No saved view yet', items: all.map((view) => ({
            label: view.name, hint: view.shared ? 'shared' : undefined, chosen: view.query === query,
            run: () => void navigate({ to: '.', search: parseSearch(view.query) as never }),
          })) },
          { items: [{ label: 'Save this view…', run: () => onSave(true) }] },
          ...(mine.length ? [{ heading: 'Delete', items: mine.map((view) => ({ label: view.name, danger: true, run: () => void remove(view) })) }] : []),
        ]} />
      </span>
      <Dialog open={saving} onClose={() => onSave(false)} title="Save this view" text="Its filters, as they stand in the address." footer={<>
        <Button onClick={() => onSave(false)}>Cancel</Button>
        <Button look="primary" type="submit" form="save-view" disabled={!name.trim()} busy={save.isPending}>Save</Button>
      </>}>
        <form id="save-view" className="space-y-3" onSubmit={(event) => {
          event.preventDefault()
          save.mutate()
        }}>
          <TextField label="Name" required maxLength={100} value={name} onChange={(e) => setName(e.target.value)} autoComplete="off" />
          <Switch label="For every member" hint="Otherwise you alone see it." on={shared} onChange={setShared} />
          <p className="font-mono text-xs break-all text-faint">?{query}</p>
          {save.error && <Refusal error={save.error} />}
        </form>
      </Dialog>
    </>
  )
}
