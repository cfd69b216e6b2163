import clsx from 'clsx'
import { CheckIcon } from 'lucide-react'
import type { Block, Tier } from './api'
import { lacks, rank, rules, tiers } from './ladder'

interface Props { tier: Tier; block: Block | null; voided?: boolean }

/** The tiers of trust from below: which are reached, what each unlocks, and what the next one lacks. */
export function Ladder({ tier, block, voided }: Props) {
  const at = rank(tier)
  return (
    <ol className="text-sm" aria-label="Tiers of trust">
      {tiers.map((name, i) => {
        const reached = i + 1 <= at
        const missing = reached ? [] : lacks(name, block)
        return (
          <li key={name} aria-current={i + 1 === at ? 'step' : undefined} className="relative flex gap-3 pb-3 last:pb-0">
            {i < tiers.length - 1 && <span aria-hidden className={clsx('absolute top-5 bottom-0 left-[9px] w-px', i + 1 < at ? 'bg-accent' : 'bg-line')} />}
            <span aria-hidden className={clsx('z-1 flex size-[19px] shrink-0 items-center justify-center rounded-full border',
              reached ? 'border-accent bg-accent text-on-accent' : 'border-edge bg-surface')}>{reached && <CheckIcon size={12} />}</span>
            <div className="min-w-0">
              <p className={clsx('font-medium', !reached && 'text-soft')}>{name}<span className="only-read">{reached ? ', reached' : ', not reached'}</span>
                <span className="ml-2 text-xs font-normal text-faint">unlocks {rules[name].unlocks}</span></p>
              <p className="text-xs text-soft">{rules[name].rule}</p>
              {!voided && missing.length > 0 && (i === at || (at === 0 && i === 0)) && <p className="text-xs text-warn">Still missing: {missing.join('; ')}</p>}
            </div>
          </li>
        )
      })}
    </ol>
  )
}
