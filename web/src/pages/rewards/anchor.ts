// What the anchor of a session has found, for its pictures. Pure, so that it can be tested.
import type { components } from '../../api/v1'

export type Check = components['schemas']['AnchorCheck']
export type Session = components['schemas']['RewardSession']

/** The checks of each e-process, in order: a release begins the next. */
export function processes(history: Check[]): { process: number; checks: { at: number; check: Check }[] }[] {
  const made = new Map<number, { at: number; check: Check }[]>()
  history.forEach((check, i) => {
    const list = made.get(check.process) ?? []
    list.push({ at: i + 1, check })
    made.set(check.process, list)
  })
  return [...made].map(([process, checks]) => ({ process, checks }))
}

/** The evidence on a scale on which its mark is seen beside small values: the logarithm. */
export const logEvidence = (evidence: number): number => Math.log(Math.max(evidence, 1e-6))

/** What the last check says, in a sentence. */
export function lastWords(check: Check | undefined, holdsFrom: number): string {
  if (!check) return 'No check was made yet.'
  const points = (x: number) => `${(x * 100).toFixed(0)} %`
  return `At step ${check.step} the reward passes ${points(check.reward_rate)} of ${check.n} completions and the anchor ${points(check.anchor_rate)}${check.anchor_corrected ? ', corrected for its errors' : ''}; `
    + `the evidence against a healthy run is ${check.evidence < 10 ? check.evidence.toFixed(2) : check.evidence.toFixed(0)}, and the run is held at ${holdsFrom}.`
}

/** How much of the budget is gone, and whether what is left is little. */
export function burn(session: Session): { share: number; low: boolean } {
  const share = session.budget_usd > 0 ? session.spent_usd / session.budget_usd : 0
  return { share, low: session.status === 'ACTIVE' && share > 0.9 }
}
