// The adoption of a trained model by an alias. Pure, so that it can be tested.
import type { components } from '../../api/v1'

type Alias = components['schemas']['Alias']
type Eval = components['schemas']['Eval']
export type AdoptBody = components['schemas']['AdoptionRequest']

export interface AdoptForm { alias: string; percent: string; evalId: string }

export const adoptBody = (form: AdoptForm): AdoptBody =>
  ({ aliasName: form.alias, canaryPercent: Number(form.percent), ...(form.evalId && { evalId: form.evalId }) })

/** The model that an alias stands for: a canary that gets every request has taken the target's place. */
export const incumbent = (alias: Pick<Alias, 'target_model' | 'canary_model' | 'canary_percent'>): string =>
  alias.canary_percent === 100 && alias.canary_model ? alias.canary_model : alias.target_model

/** The evals that compared a model with another: these can prove that it may take its place. */
export const provers = <T extends Pick<Eval, 'baseline_model' | 'candidate_models'>>(evals: T[], baseline: string, model: string): T[] =>
  evals.filter((one) => one.baseline_model === baseline && one.candidate_models.includes(model))
