import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { DownloadIcon } from 'lucide-react'
import { useState } from 'react'
import { data, download, v1 } from '../../api/client'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { bytes } from '../../format'
import { useAllowed } from '../../ui/Allowed'
import { Button, buttonClass } from '../../ui/Button'
import { CopyButton, CurlButton, Id } from '../../ui/Copy'
import { Confirm } from '../../ui/Dialog'
import { A } from '../../ui/Link'
import { Page, Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Facts, SkeletonLines, Time } from '../../ui/Values'
import { JsonView } from '../../ui/Viewer'
import { SignedProof } from '../judges/SignedProof'
import type { Version as Shape } from './api'
import { placeOf } from './lineage'
import { LineageGraph } from './LineageGraph'
import { methodNames } from './rows'
import { Use } from './Use'

/** A trained model: how it is used, what it was made of, its files, and its proof. */
export default function Version() {
  const ws = useWorkspaceId()
  const { version: id } = useParams({ strict: false }) as { version: string }
  const params = { params: { path: { id } } }
  const version = useQuery({ queryKey: ['model-version', ws, id], queryFn: ({ signal }) => data(v1(ws).GET('/v1/model-versions/{id}', { ...params, signal })) })
  const lineage = useQuery({ queryKey: ['model-lineage', ws, id], queryFn: ({ signal }) => data(v1(ws).GET('/v1/model-versions/{id}/lineage', { ...params, signal })) })
  const above = <><A to="training">Training</A> / <A to="training" query={{ tab: 'models' }}>Models</A></>
  if (version.error) return <Page title="Model" above={above}><Refusal error={version.error} retry={() => void version.refetch()} /></Page>
  if (!version.data) return <Page title="Model" above={above}><SkeletonLines lines={10} /></Page>
  const v = version.data
  return (
    <Page title={v.name} above={above} aside={<>{methodNames[v.method] ?? v.method} of {v.base_model}</>} actions={<>
      <CurlButton call={{ path: `/v1/model-versions/${v.id}` }} small={false} />
      <A to="training" query={{ new: 'job', model: v.id }} className={buttonClass()}>Train it further</A>
      <Delete of={v} />
    </>}>
      <Use of={v} />
      <Section title="Lineage" actions={<CurlButton call={{ path: `/v1/model-versions/${v.id}/lineage` }} />}>
        {lineage.error && <Refusal error={lineage.error} retry={() => void lineage.refetch()} />}
        {lineage.isPending && <SkeletonLines lines={4} />}
        {lineage.data && <LineageGraph of={lineage.data} />}
      </Section>
      <div className="grid items-start gap-x-4 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <div className="min-w-0">
          <MadeOf v={v} />
          <Files v={v} />
        </div>
        <div className="min-w-0">
          <SignedProof of={v} noun="Model version" path={`/v1/model-versions/${v.id}`} link={`${location.origin}/dashboard/w/${ws}/training/models/${v.id}`}>
            <Facts rows={[['Version', <Id value={v.id} />], ['Files', <Digest of={v.artifact_sha256} what="the SHA-256 of its manifest" />], ['Key', <Id value={v.signature.key_id} />]]} />
          </SignedProof>
        </div>
      </div>
    </Page>
  )
}

const Digest = ({ of, what }: { of: string; what: string }) => (
  <span className="inline-flex max-w-full items-center gap-1"><code className="truncate font-mono text-xs" title={of}>{of.slice(0, 16)}…</code><CopyButton text={of} label="" what={what} /></span>
)

function MadeOf({ v }: { v: Shape }) {
  const source = placeOf({ id: v.source.id, type: v.source.type, name: '' })
  return (
    <Section title="What it was made of">
      <Facts rows={[
        ['Base model', v.base_model],
        ...(v.parent_id ? [['Trained on from', <A to={`training/models/${v.parent_id}`}>{v.parent_id}</A>] as [string, React.ReactNode]] : []),
        ['Run', <span>{source ? <A to={source}>{v.source.id}</A> : v.source.id}, step {v.source.step}</span>],
        ...v.data.map((one) => ['Data', <span>{v.dataset_id && one.id === v.dataset_id ? <A to={`datasets/${one.id}`}>{one.name}</A> : one.name} <Digest of={one.sha256} what={`the SHA-256 of ${one.name}`} /></span>] as [string, React.ReactNode]),
        ...v.certificates.map((id) => ['Certificate', <Id value={id} />] as [string, React.ReactNode]),
        ['Seed', String(v.seed)],
        ['Code', Object.entries(v.code).map(([name, release]) => `${name} ${release}`).join(', ')],
        ['Made', <Time value={v.created_at} />],
      ]} />
      <details className="mt-3 text-sm"><summary className="text-soft">Hyperparameters</summary><JsonView value={v.hyperparameters} /></details>
    </Section>
  )
}

function Files({ v }: { v: Shape }) {
  const ws = useWorkspaceId()
  const [open, setOpen] = useState(false)
  const files = useQuery({
    queryKey: ['model-files', ws, v.id], enabled: open, queryFn: ({ signal }) => data(v1(ws).GET('/v1/model-versions/{id}/files', { params: { path: { id: v.id } }, signal })),
  })
  const href = (name: string) => download(ws, `/model-versions/${v.id}/files/${name.split('/').map(encodeURIComponent).join('/')}`)
  return (
    <Section title="Files" aside={bytes(v.bytes)} flush actions={<CurlButton call={{ path: `/v1/model-versions/${v.id}/files` }} />}>
      {files.error && <div className="p-3"><Refusal error={files.error} retry={() => void files.refetch()} /></div>}
      {!open && <p className="px-3.5 py-3"><Button icon={<DownloadIcon size={14} />} onClick={() => setOpen(true)}>List the files</Button></p>}
      {open && files.isPending && <div className="p-3"><SkeletonLines lines={3} /></div>}
      <ul>
        {files.data?.data.map((file) => (
          <li key={file.name} className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b border-line px-3.5 py-2 text-sm last:border-0">
            <a href={href(file.name)} download className="link inline-flex min-w-0 flex-1 basis-40 items-center gap-1.5 font-medium"><DownloadIcon size={14} aria-hidden className="shrink-0" /><span className="truncate">{file.name}</span></a>
            <span className="text-xs text-faint">{bytes(file.bytes)}</span>
            <Digest of={file.sha256} what={`the SHA-256 of ${file.name}`} />
          </li>
        ))}
      </ul>
    </Section>
  )
}

function Delete({ of }: { of: Shape }) {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const navigate = useNavigate()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const [asking, setAsking] = useState(false)
  return (
    <>
      <Button look="danger" disabled={!may} title={why} onClick={() => setAsking(true)}>Delete…</Button>
      <Confirm open={asking} onClose={() => setAsking(false)} danger action="Delete" typedName={of.name} title="Delete this model?"
        text={`Its files, ${bytes(of.bytes)}, are deleted. What it was trained on stays. This cannot be undone.`}
        run={async () => {
          await data(v1(ws).DELETE('/v1/model-versions/{id}', { params: { path: { id: of.id } } }))
          await client.invalidateQueries({ queryKey: ['model-versions', ws] })
          tell('The model is deleted')
          void navigate({ to: `/w/${ws}/training` as never, search: { tab: 'models' } as never })
        }} />
    </>
  )
}
