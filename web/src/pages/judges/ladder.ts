// The tiers of trust: their rules, and what a judge lacks for each. The server decides; this says why.
import { count, rate } from '../../format'
import type { Block, Tier } from './api'

export const tiers = ['provisional', 'measured', 'calibrated', 'certified'] as const
export const mark = 0.9
const leastMeasured = 30
const leastCalibrated = 50
const mostFailed = 0.05

export const rules: Record<(typeof tiers)[number], { rule: string; unlocks: string }> = {
  provisional: { rule: 'a finished calibration', unlocks: 'display' },
  measured: { rule: `at least ${leastMeasured} pass and ${leastMeasured} fail in the report half, at most 5 % failures`, unlocks: 'evals, gates that recommend, reward' },
  calibrated: { rule: `at least ${leastCalibrated} of each, sensitivity and specificity at least 0.90`, unlocks: 'gates that act by themselves, anchors' },
  certified: { rule: 'both lower bounds at least 0.90', unlocks: 'the badge' },
}

export const rank = (tier: Tier): number => ['none', ...tiers].indexOf(tier)

type Measured = Pick<Block, 'matrix' | 'se' | 'sp' | 'se_ci' | 'sp_ci' | 'holdout_active' | 'failed' | 'n'>

/** What keeps a judge below a tier, as sentences; none when it meets the rule. */
export function lacks(tier: (typeof tiers)[number], block: Measured | null): string[] {
  if (!block) return tier === 'provisional' ? ['calibrate it'] : []
  const out: string[] = []
  const { tp, fn, tn, fp } = block.matrix
  const [passing, failing] = block.holdout_active ? [tp + fn, tn + fp] : [null, null]
  const least = tier === 'measured' ? leastMeasured : tier === 'provisional' ? 0 : leastCalibrated
  if (tier !== 'provisional') {
    if (passing === null || failing === null) out.push(`the report half holds under ${leastMeasured} of a class`)
    else {
      if (passing < least) out.push(`${count(least - passing)} more pass in the report half`)
      if (failing < least) out.push(`${count(least - failing)} more fail in the report half`)
    }
    const answers = block.n + block.failed
    if (answers > 0 && block.failed / answers > mostFailed) out.push(`${count(block.failed)} of ${count(answers)} answers were no verdicts`)
  }
  if (tier === 'calibrated' || tier === 'certified') {
    if ((block.se ?? 0) < mark) out.push(`sensitivity ${block.se === null ? 'unknown' : rate(block.se)}`)
    if ((block.sp ?? 0) < mark) out.push(`specificity ${block.sp === null ? 'unknown' : rate(block.sp)}`)
  }
  if (tier === 'certified') {
    if ((block.se_ci?.[0] ?? 0) < mark) out.push(`sensitivity’s lower bound ${block.se_ci ? rate(block.se_ci[0]!) : 'unknown'}`)
    if ((block.sp_ci?.[0] ?? 0) < mark) out.push(`specificity’s lower bound ${block.sp_ci ? rate(block.sp_ci[0]!) : 'unknown'}`)
  }
  return out
}

/** Labels that a judge without a measurement still needs of each class; half of them measures it. */
export function stillNeeded(labels: { pass: number; fail: number }): { pass: number; fail: number } {
  return { pass: Math.max(0, leastMeasured - labels.pass), fail: Math.max(0, leastMeasured - labels.fail) }
}

/** "30 pass and 30 fail still needed", or nothing. */
export function needSentence(labels: { pass: number; fail: number }): string {
  const { pass, fail } = stillNeeded(labels)
  if (!pass && !fail) return ''
  return [pass && `${pass} pass`, fail && `${fail} fail`].filter(Boolean).join(' and ') + ' still needed'
}
