import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import { data, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { money } from '../../format'
import { useAllowed } from '../../ui/Allowed'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Confirm } from '../../ui/Dialog'
import { Money } from '../../ui/Values'
import { enginesQuery, useChanged, walletQuery, type Endpoint } from './api'
import { isStopped, startPrice } from './endpoint'

/** Start, stop and delete an endpoint. Each says what it costs or ends before it is done. */
export function Actions({ of, held }: { of: Endpoint; held: number }) {
  const ws = useWorkspaceId()
  const navigate = useNavigate()
  const changed = useChanged()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const [asking, setAsking] = useState<'start' | 'stop' | 'delete'>()
  const params = { params: { path: { id: of.id } } }
  const path = `/v1/dedicated-endpoints/${of.id}`
  const close = () => setAsking(undefined)
  const back = held > 0 && <> What is left of the <Money usd={held} /> that is set aside comes back.</>
  const curl = (method: string, at: string): ReactNode => <CurlButton call={{ method, path: at }} />
  return (
    <>
      {isStopped(of) ? <Button look="primary" disabled={!may} title={why} onClick={() => setAsking('start')}>Start</Button>
        : of.status !== 'STOPPING' && <Button disabled={!may} title={why} onClick={() => setAsking('stop')}>Stop</Button>}
      <Button look="danger" disabled={!may} title={why} onClick={() => setAsking('delete')}>Delete…</Button>
      {asking === 'start' && <Start of={of} onClose={close} />}
      <Confirm open={asking === 'stop'} onClose={close} danger action="Stop it" title={`Stop ${of.name}?`}
        text={<>Its engines answer what they were asked, for a minute at most, and end. New requests to <code>{of.model}</code> are refused until it is started again.{back}</>}
        run={async () => {
          await data(v1(ws).POST('/v1/dedicated-endpoints/{id}/stop', params))
          await changed(ws)
          tell('The endpoint stops')
        }}>{curl('POST', `${path}/stop`)}</Confirm>
      <Confirm open={asking === 'delete'} onClose={close} danger action="Delete" typedName={of.name} title={`Delete ${of.name}?`}
        text={<>The model id <code>{of.model}</code> is unknown at once and for good: programs that call it get 404. Its engines answer what they were asked, and
          end.{back} What it cost stays in the ledger, and the model that it serves stays too. This cannot be undone.</>}
        run={async () => {
          await data(v1(ws).DELETE('/v1/dedicated-endpoints/{id}', params))
          tell('The endpoint is deleted')
          await navigate({ to: `/w/${ws}/training` as never, search: { tab: 'endpoints' } as never })
          await changed(ws)
        }}>{curl('DELETE', path)}</Confirm>
    </>
  )
}

/** Asks before a start, with the present price. */
function Start({ of, onClose }: { of: Endpoint; onClose: () => void }) {
  const ws = useWorkspaceId()
  const changed = useChanged()
  const { tell } = useToast()
  const engines = useQuery(enginesQuery(ws))
  const free = useQuery(walletQuery(ws)).data?.free_usd
  const price = startPrice(of, engines.data ?? [])
  return (
    <Confirm open onClose={onClose} action={`Set ${money(price)} aside and start`} title={`Start ${of.name}?`}
      text={<>An hour {of.max_replicas > 1 ? `of all ${of.max_replicas} replicas ` : ''}costs <Money usd={price} className="font-medium text-text" /> now. It is set aside from the
        wallet{free === undefined ? '' : <>, which has <Money usd={free} /> free</>}; the seconds in which an engine is ready are charged, and the rest comes back.
        {price > of.max_hourly_usd && <span className="text-fail"> That is more than the {money(of.max_hourly_usd)} that an hour of it may cost: the start will be refused.</span>}</>}
      run={async () => {
        const now = await data(v1(ws).POST('/v1/dedicated-endpoints/{id}/start', { params: { path: { id: of.id } } }))
        await changed(ws)
        tell('The endpoint starts', { text: `Requests to ${now.model} wait until an engine is ready.` })
      }}><CurlButton call={{ method: 'POST', path: `/v1/dedicated-endpoints/${of.id}/start` }} /></Confirm>
  )
}
