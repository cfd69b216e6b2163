import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { PlusIcon } from 'lucide-react'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { curl } from '../../api/curl'
import { useWorkspaceId } from '../../api/session'
import { useToast } from '../../app/Toasts'
import { duration } from '../../format'
import { useKeys } from '../../keys'
import { useAllowed } from '../../ui/Allowed'
import { Badge } from '../../ui/Badge'
import { Button } from '../../ui/Button'
import { CurlButton } from '../../ui/Copy'
import { Confirm, Dialog } from '../../ui/Dialog'
import { EmptyState } from '../../ui/EmptyState'
import { Field, TextField } from '../../ui/Field'
import { Section } from '../../ui/Page'
import { Refusal } from '../../ui/Refusal'
import { Secret } from '../../ui/Secret'
import { Facts, SkeletonLines } from '../../ui/Values'
import { TextView } from '../../ui/Viewer'
import { toolsQuery, type Tool } from './api'

const example = {
  name: 'look_up_order', description: 'Reads an order by its number.', endpointUrl: 'https://tools.example.com/orders',
  parameters: { type: 'object', properties: { order: { type: 'string' } }, required: ['order'] },
}

/** HTTPS endpoints that a model may call while a GRPO run trains it. */
export function Tools() {
  const ws = useWorkspaceId()
  const client = useQueryClient()
  const { tell } = useToast()
  const { may, why } = useAllowed()
  const list = useQuery(toolsQuery(ws))
  const [adding, setAdding] = useState(false)
  const [testing, setTesting] = useState<Tool>()
  const [deleting, setDeleting] = useState<Tool>()
  const [made, setMade] = useState<Tool>()
  useKeys('Environment tools', [{ keys: 'n', label: 'Register a tool', run: () => may && setAdding(true) }])
  const add = <Button look="primary" disabled={!may} title={why} icon={<PlusIcon size={14} />} onClick={() => setAdding(true)}>Register a tool</Button>
  return (
    <>
      {list.error && <Refusal error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <SkeletonLines />}
      {list.data?.length === 0 && (
        <EmptyState title="No tools yet" action={add} snippet={curl({ method: 'POST', path: '/v1/environment/tools', body: example })}
          text="An environment tool is an HTTPS endpoint of yours that a model may call in the rollouts of a GRPO run: a search, a database, a test bench. Calls are signed with the tool’s secret, and stand in the trajectory." />
      )}
      {list.data && list.data.length > 0 && (
        <Section title="Environment tools" aside={String(list.data.length)} flush actions={<><CurlButton call={{ path: '/v1/environment/tools' }} />{add}</>}>
          <ul>
            {list.data.map((tool) => (
              <li key={tool.id} className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b border-line px-3.5 py-2 text-sm last:border-0">
                <span className="min-w-0 flex-1 basis-56"><code className="font-mono font-medium">{tool.name}</code>
                  <span className="block truncate text-soft">{tool.description}</span>
                  <span className="block truncate text-xs text-faint">{tool.endpoint_url} · within {duration(tool.timeout_ms)}</span></span>
                <Button small disabled={!may} title={why} onClick={() => setTesting(tool)}>Test</Button>
                <Button small look="danger" disabled={!may} title={why} onClick={() => setDeleting(tool)}>Delete</Button>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {adding && <NewTool onClose={() => setAdding(false)} onMade={(tool) => {
        setAdding(false)
        void client.invalidateQueries({ queryKey: ['env-tools', ws] })
        if (tool.secret) setMade(tool)
        else tell(`${tool.name} can be used now`)
      }} />}
      {made?.secret && <Secret open onClose={() => setMade(undefined)} title={`The secret of ${made.name}`} secret={made.secret}
        text="It is shown once. Your endpoint checks with it that a call is ours: the HMAC-SHA256 of the timestamp, a dot and the body."
        snippetTitle="In Python" snippet={check} />}
      {testing && <TestTool tool={testing} onClose={() => setTesting(undefined)} />}
      <Confirm open={Boolean(deleting)} onClose={() => setDeleting(undefined)} danger action="Delete" title={`Delete ${deleting?.name}?`}
        text="Its secret is deleted too. Runs that use it get an error in place of its answer." run={async () => {
          await data(v1(ws).DELETE('/v1/environment/tools/{id}', { params: { path: { id: deleting!.id } } }))
          await client.invalidateQueries({ queryKey: ['env-tools', ws] })
          tell('The tool is deleted')
        }} />
    </>
  )
}

const check = `import hmac

def is_ours(secret: str, headers, body: bytes) -> bool:
    stamp = headers["X-Sovereign-Timestamp"]
    told = headers["X-Sovereign-Signature"]
    want = hmac.digest(secret.encode(), stamp.encode() + b"." + body, "sha256").hex()
    return hmac.compare_digest(told, "v1=" + want)`

/** JSON of an object, or what is wrong with it. */
function readObject(text: string): { value?: Record<string, unknown>; fault?: string } {
  if (text.trim() === '') return {}
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { value: value as Record<string, unknown> } : { fault: 'Must be a JSON object' }
  } catch {
    return { fault: 'Is no JSON' }
  }
}

function NewTool({ onClose, onMade }: { onClose: () => void; onMade: (tool: Tool) => void }) {
  const ws = useWorkspaceId()
  const [form, setForm] = useState({ name: '', description: '', url: '', parameters: '', timeout: '10' })
  const parameters = readObject(form.parameters)
  const body = {
    name: form.name, description: form.description.trim(), endpointUrl: form.url, timeoutMs: Math.round(Number(form.timeout) * 1000), ...(parameters.value && { parameters: parameters.value }),
  }
  const make = useMutation({ mutationFn: () => data(v1(ws).POST('/v1/environment/tools', { body })), onSuccess: onMade })
  const field = (name: keyof typeof form) => ({ value: form[name], onChange: (event: { target: { value: string } }) => setForm({ ...form, [name]: event.target.value }) })
  const ready = form.name && form.description.trim() && form.url && !parameters.fault
  return (
    <Dialog open wide onClose={onClose} title="Register a tool" text="The server makes its secret, and shows it once." footer={<>
      <CurlButton call={{ method: 'POST', path: '/v1/environment/tools', body }} />
      <Button onClick={onClose}>Cancel</Button>
      <Button look="primary" disabled={!ready} busy={make.isPending} onClick={() => make.mutate()}>Register</Button>
    </>}>
      <form className="space-y-3" onSubmit={(event) => {
        event.preventDefault()
        if (ready) make.mutate()
      }}>
        <TextField label="Name" hint="What the model calls it: letters, digits, underscores and dashes" spellCheck={false} {...field('name')} />
        <TextField label="Description" hint="The model decides by it when to call" maxLength={1000} {...field('description')} />
        <TextField label="URL" type="url" placeholder="https://tools.example.com/orders" hint="A public https address" {...field('url')} />
        <Field label="Arguments, as a JSON schema" hint="Of the type object; empty for none" error={parameters.fault}>
          {(props) => <textarea {...props} rows={5} spellCheck={false} className="control w-full font-mono text-xs" placeholder={JSON.stringify(example.parameters)} {...field('parameters')} />}
        </Field>
        <TextField label="Answers within, seconds" inputMode="decimal" {...field('timeout')} />
        {make.error && <Refusal error={make.error} />}
        <button type="submit" hidden />
      </form>
    </Dialog>
  )
}

function TestTool({ tool, onClose }: { tool: Tool; onClose: () => void }) {
  const ws = useWorkspaceId()
  const [text, setText] = useState('{}')
  const args = readObject(text)
  const path = `/v1/environment/tools/${tool.id}/test`
  const test = useMutation({
    mutationFn: () => data(v1(ws).POST('/v1/environment/tools/{id}/test', { params: { path: { id: tool.id } }, body: { arguments: args.value ?? {} } })),
  })
  const got = test.data
  return (
    <Dialog open wide onClose={onClose} title={`Test ${tool.name}`} text="Calls it once, as a run would." footer={<>
      <CurlButton call={{ method: 'POST', path, body: { arguments: args.value ?? {} } }} />
      <Button onClick={onClose}>Close</Button>
      <Button look="primary" disabled={Boolean(args.fault)} busy={test.isPending} onClick={() => test.mutate()}>Call it</Button>
    </>}>
      <div className="space-y-3">
        <Field label="Arguments" error={args.fault}>
          {(props) => <textarea {...props} rows={4} spellCheck={false} className="control w-full font-mono text-xs" value={text} onChange={(event) => setText(event.target.value)} />}
        </Field>
        {test.error && <Refusal error={test.error} />}
        {got && (
          <div aria-live="polite" className="space-y-2 text-sm">
            <p>{got.error ? <Badge tone="fail">no answer</Badge> : <Badge tone="pass">answered</Badge>} <span className="text-soft">HTTP {got.status || '–'} in {duration(got.latency_ms)}</span></p>
            {got.error ? <p className="break-words text-fail">{got.error}</p> : <TextView label="What the model reads" text={got.content} markdown={false} />}
            {!got.error && <Facts rows={[['Reward', got.reward === null ? 'none' : String(got.reward)], ['Episode', got.done ? 'over' : 'goes on']]} />}
          </div>
        )}
      </div>
    </Dialog>
  )
}
