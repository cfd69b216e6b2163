import { count, percent } from '../format'
import { ChartFrame } from './frame'

export interface FunnelStep { label: string; value: number; lost?: { reason: string; value: number }[] }

/** How many are left after each step, and why the others are not. */
export function Funnel({ title, steps }: { title: string; steps: FunnelStep[] }) {
  const most = Math.max(1, ...steps.map((step) => step.value))
  return (
    <ChartFrame title={title} height={steps.length * 40} summary={steps.map((s) => `${s.label} ${count(s.value)}`).join(', ')}
      table={{
        headers: ['Step', 'Left', 'Lost'],
        rows: steps.map((s) => [s.label, s.value, (s.lost ?? []).map((l) => `${l.reason} ${count(l.value)}`).join(', ')]),
      }}>
      {(width) => (
        <ol className="space-y-2">
          {steps.map((step) => (
            <li key={step.label} className="h-8">
              <div className="flex justify-between gap-3 text-xs">
                <span className="truncate">{step.label}{step.lost?.length
                  ? <span className="text-faint"> · without {step.lost.map((l) => `${count(l.value)} ${l.reason}`).join(', ')}</span> : null}</span>
                <span className="shrink-0">{count(step.value)} <span className="text-faint">{percent(step.value / most, 0)}</span></span>
              </div>
              <div className="mt-1 h-2 rounded-xs bg-raised"><div className="h-full rounded-xs bg-accent" style={{ width: Math.max(2, (step.value / most) * width) }} /></div>
            </li>
          ))}
        </ol>
      )}
    </ChartFrame>
  )
}
