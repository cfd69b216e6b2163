import { useQuery } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { PencilIcon, Undo2Icon } from 'lucide-react'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useCommands } from '../../app/commands'
import { useToast } from '../../app/Toasts'
import { useKeys } from '../../keys'
import { text, useQueryState } from '../../query'
import { useAllowed } from '../../ui/Allowed'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Confirm } from '../../ui/Dialog'
import { Snippet } from '../../ui/EmptyState'
import { A } from '../../ui/Link'
import { priceText, useModels } from '../../ui/ModelPicker'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Facts, SkeletonLines, Stat, Stats, Time } from '../../ui/Values'
import { WhenSeen } from '../../ui/WhenSeen'
import { Verdict } from './Aliases'
import { EditAlias, usePutAlias } from './EditAlias'
import { GateSection } from './GateSection'
import { previousTarget, toPut, type Alias as Shape, type PutAlias } from './gate'
import { History, useHistory } from './History'

const schema = { edit: text(), epoch: text() }

/** One alias: its arms, the evidence about its canary, what the gate does, its history. */
export default function Alias() {
  const ws = useWorkspaceId()
  const { alias: name } = useParams({ strict: false }) as { alias: string }
  const [state, set] = useQueryState(schema)
  const alias = useQuery({
    queryKey: ['alias', ws, name], refetchInterval: 10_000,
    queryFn: ({ signal }) => data(v1(ws).GET('/v1/aliases/{name}', { params: { path: { name } }, signal })),
  })
  const above = <A to="aliases">Aliases</A>
  if (alias.error) return <Page title={name} above={above}><Refusal error={alias.error} retry={() => void alias.refetch()} /></Page>
  if (!alias.data) return <Page title={name} above={above}><SkeletonLines /></Page>
  return <Loaded alias={alias.data} editing={state.edit === 'true'} edit={(on) => set({ edit: on ? 'true' : '' })}
    epoch={state.epoch} setEpoch={(epoch) => set({ epoch })} />
}

interface LoadedProps { alias: Shape; editing: boolean; edit: (on: boolean) => void; epoch: string; setEpoch: (epoch: string) => void }

function Loaded({ alias, editing, edit, epoch, setEpoch }: LoadedProps) {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const history = useHistory(alias.name, alias.canary_percent === 0) // a split is ended without it
  const [asking, setAsking] = useState<'back' | 'delete'>()
  const [filled, setFilled] = useState<Partial<PutAlias>>()
  const put = usePutAlias(alias)
  const before = previousTarget(alias, history.data?.data ?? [])
  const splits = alias.canary_percent > 0
  const back: PutAlias | undefined = splits ? { ...toPut(alias), canary_percent: 0 } : before ? { ...toPut(alias), target_model: before } : undefined
  const rollBack = () => may && back && setAsking('back')
  const change = () => may && edit(true)
  useKeys(alias.name, [{ keys: 'r', label: 'Roll back', run: rollBack }, { keys: 'e', label: 'Change or repoint', run: change }])
  useCommands([{ id: 'alias back', label: `Roll ${alias.name} back`, run: rollBack }, { id: 'alias edit', label: `Change ${alias.name}`, run: change }])
  return (
    <Page title={alias.name} above={<A to="aliases">Aliases</A>} aside={<><Verdict gate={alias.gate} /><span className="truncate">{alias.description}</span></>}
      actions={<>
        <CurlButton call={{ path: `/v1/aliases/${alias.name}/gate` }} small={false} />
        <Button look="danger" disabled={!may} title={why} onClick={() => setAsking('delete')}>Delete</Button>
        <Button icon={<Undo2Icon size={14} />} disabled={!may || !back} onClick={rollBack}
          title={why ?? (back ? undefined : 'There is no split to end, and no model before this one')}>Roll back <kbd className="kbd">r</kbd></Button>
        <Button look="primary" icon={<PencilIcon size={14} />} disabled={!may} title={why} onClick={change}>Repoint</Button>
      </>}>
      <Split alias={alias} />
      {alias.gate ? <GateSection alias={alias} epoch={epoch} setEpoch={setEpoch} promote={may ? () => {
        setFilled({ target_model: alias.canary_model, canary_model: '', canary_percent: 0 })
        edit(true)
      } : undefined} /> : <NoGate alias={alias} change={may ? change : undefined} />}
      <WhenSeen height={160}><History name={alias.name} /></WhenSeen>
      <Called alias={alias} />
      {editing && <EditAlias alias={alias} change={filled} onClose={() => {
        edit(false)
        setFilled(undefined)
      }} />}
      <Confirm open={asking === 'back'} onClose={() => setAsking(undefined)} action="Roll back" danger title={`Roll ${alias.name} back?`}
        text={splits ? <>All requests go to <strong>{alias.target_model}</strong>; <strong>{alias.canary_model}</strong> gets no more. This needs no proof. It can be undone, and the evidence then begins anew.</>
          : <>Requests go to <strong>{before}</strong> again, in place of {alias.target_model}.</>}
        run={() => put.mutateAsync(back!)}>
        {back && <CurlButton call={{ method: 'PUT', path: '/v1/aliases', body: back }} />}
      </Confirm>
      <Confirm open={asking === 'delete'} onClose={() => setAsking(undefined)} danger action="Delete" typedName={alias.name} title={`Delete ${alias.name}?`}
        text="Programs that call it get an error from that moment on. Its history stays in the audit trail." run={async () => {
          await data(v1(ws).DELETE('/v1/aliases/{name}', { params: { path: { name: alias.name } } }))
          tell(`${alias.name} is deleted`, { undo: () => put.mutateAsync(toPut(alias)) })
          void navigate({ to: `/w/${ws}/aliases` as never })
        }} />
    </Page>
  )
}

/** Where requests go, and the price of each model. */
function Split({ alias }: { alias: Shape }) {
  const models = useModels().data
  const price = (id: string) => priceText(models?.find((model) => model.id === id))
  const share = alias.canary_model ? alias.canary_percent : 0
  return (
    <>
      <Stats>
        <Stat label={`Target · ${100 - share} %`} value={alias.target_model} hint={price(alias.target_model)} to="logs" query={{ model: alias.target_model }} />
        {alias.canary_model && (
          <Stat label={`Canary · ${share} %`} value={alias.canary_model} hint={price(alias.canary_model)} to="logs" query={{ model: alias.canary_model }} />
        )}
      </Stats>
      <div className="my-3" role="img" aria-label={`${100 - share} percent to the target, ${share} percent to the canary`}>
        <div className="flex h-2.5 overflow-hidden rounded-full border border-line">
          <div className="bg-accent" style={{ width: `${100 - share}%` }} /><div className="bg-info" style={{ width: `${share}%` }} />
        </div>
      </div>
    </>
  )
}

/** The call of a program, and what else is set. */
function Called({ alias }: { alias: Shape }) {
  return (
        <Section title="How it is called">
          <Facts rows={[
            ['Fallbacks', alias.fallback_models?.length ? alias.fallback_models.join(', then ') : 'none'],
            ['Made', <Time value={alias.created_at} />], ['Last changed', <Time value={alias.updated_at} />],
          ]} />
          <Snippet text={`curl ${location.origin}/v1/chat/completions -H "Authorization: Bearer $SOVEREIGN_API_KEY" \\
    -H "Content-Type: application/json" -d '{"model":"${alias.name}","messages":[{"role":"user","content":"Hello"}]}'`} />
        </Section>
  )
}

function NoGate({ alias, change }: { alias: Shape; change?: () => void }) {
  return (
    <Section title="Canary gate" actions={change && <Button onClick={change}>Set a gate</Button>}>
      <p className="text-sm text-soft">No judge compares {alias.canary_model ? `${alias.canary_model} with ${alias.target_model}` : 'a canary with the target'} yet.
        With a gate, a judge grades drawn requests of both models, and the evidence for promoting or rolling back is drawn here. You may
        look at it as often as you like: a canary that is worse by the threshold is ever promoted with a probability of at most 5 %.
        It needs a <A to="judges">measured judge</A> and <A to="settings" query={{ tab: 'logging' }}>request logging</A>.</p>
    </Section>
  )
}
