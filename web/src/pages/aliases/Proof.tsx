import { Undo2Icon } from 'lucide-react'
import { useEffect, useRef } from 'react'
import { curl } from '../../api/curl'
import { plural } from '../../format'
import { Button } from '../../ui/Button'
import { Snippet } from '../../ui/EmptyState'
import { A } from '../../ui/Link'
import type { Unproven } from './gate'

/** The query that fills the form of a new eval with what would prove it. */
export function evalQuery(body: Record<string, unknown> | undefined): Record<string, string> {
  const text = (name: string) => (typeof body?.[name] === 'string' || typeof body?.[name] === 'number' ? String(body[name]) : '')
  const candidates = Array.isArray(body?.candidate_models) ? body.candidate_models.join(',') : ''
  return {
    new: 'true', name: text('name'), baseline: text('baseline_model'), candidates, criterion: text('criterion_id'), count: text('sample_count'),
  }
}

/** A refusal of the evidence policy, as what would prove it. */
export function Proof({ unproven, back }: { unproven: Unproven; back?: () => void }) {
  const box = useRef<HTMLElement>(null)
  useEffect(() => {
    void box.current?.scrollIntoView({ block: 'nearest' }) // newer browsers answer with a promise, which is no clean-up
  }, [unproven])
  return (
    <section ref={box} role="alert" className="space-y-3 rounded-md border border-warn/50 bg-warn-ground px-3 py-2.5 text-sm">
      <p className="font-medium">The evidence policy asks for a proof that the model may replace {unproven.incumbent_model}.</p>
      {unproven.unproven.map((one) => (
        <div key={one.field + one.model} className="space-y-2">
          <p><strong>{one.model}</strong>: {one.why}.
            {one.newest_eval && <> The newest of {plural(one.evals_started, 'eval')}, <A to={`evals/${one.newest_eval.id}`}>{one.newest_eval.id}</A>, does not
              suffice: {one.newest_eval.reason}.</>}</p>
          <p className="flex flex-wrap items-center gap-2">What would prove it:
            <A to="evals" query={evalQuery(one.requests[0]?.body)}>prepare this eval, with its price</A></p>
          <Snippet text={one.requests.map((request) => curl(request)).join('\n\n')} />
        </div>
      ))}
      {back && (
        <p className="flex flex-wrap items-center gap-2">Going back to {unproven.previous_model} needs no proof.
          <Button small icon={<Undo2Icon size={12} />} onClick={back}>Choose it</Button></p>
      )}
      <p className="text-xs text-soft">The policy is in <A to="settings" query={{ tab: 'evidence' }}>Settings → Evidence</A>.</p>
    </section>
  )
}
