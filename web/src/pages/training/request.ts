// The forms of training in the query string, and what they ask the server for.
import type { components } from '../../api/v1'
import { oneOf, text, type State } from '../../query'

type Schemas = components['schemas']
export type JobBody = Schemas['FineTuningRequest']
export type GrpoBody = Schemas['GRPORequest']

export const sources = ['dataset', 'file', 'session'] as const

export const jobSchema = {
  model: text(), source: oneOf(sources, 'dataset'), dataset: text(), file: text(), session: text(), method: oneOf(['sft', 'dpo'], 'sft'),
  validation: text(), suffix: text(), epochs: text('3'), batch: text('8'), rate: text('0.0002'), rank: text('16'), length: text('1024'),
  every: text('50'), accumulation: text('1'), warmup: text('0'), patience: text('0'), beta: text('0.1'), steps: text(), seed: text(), budget: text('5'),
}
export type JobForm = State<typeof jobSchema>

/** A positive amount of dollars. */
export const isAmount = (value: string): boolean => /^\d+(\.\d{1,9})?$/.test(value) && Number(value) > 0

/** What the form still lacks, in words. */
export function lackingJob(form: JobForm): string[] {
  const missing: string[] = []
  if (!form.model) missing.push('a base model')
  if (!form[form.source]) missing.push({ dataset: 'a dataset', file: 'a file', session: 'a reward session' }[form.source])
  if (!isAmount(form.budget)) missing.push('a budget')
  return missing
}

const number = (value: string): number | undefined => (value.trim() === '' || !Number.isFinite(Number(value)) ? undefined : Number(value))

/** Without what equals the server's defaults: a curl of it stays short. */
function differing<T extends Record<string, number | undefined>>(values: T, defaults: Partial<T>): Partial<T> {
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => value !== undefined && value !== defaults[name])) as Partial<T>
}

export function jobBody(form: JobForm): JobBody {
  const hyperparameters = differing({
    epochs: number(form.epochs), batchSize: number(form.batch), learningRate: number(form.rate), loraRank: number(form.rank), maxLength: number(form.length),
    checkpointEvery: number(form.every), gradientAccumulation: number(form.accumulation), warmupRatio: number(form.warmup),
    earlyStoppingPatience: number(form.patience), maxSteps: number(form.steps), ...(form.method === 'dpo' && { beta: number(form.beta) }),
  }, { epochs: 3, batchSize: 8, learningRate: 0.0002, loraRank: 16, maxLength: 1024, checkpointEvery: 50, gradientAccumulation: 1, warmupRatio: 0, earlyStoppingPatience: 0, beta: 0.1 })
  const seed = number(form.seed)
  return {
    baseModel: form.model, ...(form.source === 'dataset' ? { datasetId: form.dataset } : form.source === 'file' ? { trainingFile: form.file } : { rewardSessionId: form.session }),
    method: form.method as 'sft' | 'dpo', ...(form.source === 'file' && form.validation && { validationFile: form.validation }), ...(form.suffix && { suffix: form.suffix }),
    ...(seed !== undefined && { seed }), budgetUsd: Number(form.budget), ...(Object.keys(hyperparameters).length > 0 && { hyperparameters: hyperparameters as JobBody['hyperparameters'] }),
  } as JobBody
}

export const grpoSchema = {
  model: text(), dataset: text(), judge: text(), anchor: text(), tools: text(), prompts: text('0'), group: text('8'), per: text('4'), steps: text('100'), kl: text('0.02'),
  rate: text('0.00001'), tokens: text('256'), rank: text('16'), every: text('10'), suffix: text(), seed: text(), budget: text('20'), rewards: text(),
}
export type GrpoForm = State<typeof grpoSchema>

export function lackingGrpo(form: GrpoForm): string[] {
  const missing: string[] = []
  if (!form.model) missing.push('a base model')
  if (!form.dataset) missing.push('a dataset')
  if (!form.judge) missing.push('a judge')
  if (!isAmount(form.budget)) missing.push('a budget')
  return missing
}

export const listOf = (joined: string): string[] => joined.split(',').filter(Boolean)

export function grpoBody(form: GrpoForm): GrpoBody {
  const tools = listOf(form.tools)
  const numbers = differing({
    promptCount: number(form.prompts), groupSize: number(form.group), promptsPerStep: number(form.per), maxSteps: number(form.steps), klBeta: number(form.kl),
    learningRate: number(form.rate), maxCompletionTokens: number(form.tokens), loraRank: number(form.rank), checkpointEvery: number(form.every), seed: number(form.seed),
  }, { promptCount: 0, groupSize: 8, promptsPerStep: 4, maxSteps: 100, klBeta: 0.02, learningRate: 0.00001, maxCompletionTokens: 256, loraRank: 16, checkpointEvery: 10 })
  return {
    baseModel: form.model, datasetId: form.dataset, criterionId: form.judge, ...(form.anchor && { anchorCriterionId: form.anchor }), ...(tools.length > 0 && { environmentToolIds: tools }),
    ...numbers, ...(form.suffix && { suffix: form.suffix }), budgetUsd: Number(form.budget), ...(isAmount(form.rewards) && { rewardBudgetUsd: Number(form.rewards) }),
  } as GrpoBody
}

/** The lines that a file's refusal names, one fault each; the refusal alone where it names none. */
export function lineFaults(message: string): string[] {
  const parts = message.split(/; (?=line \d+:|and perhaps more)/)
  return parts.length > 1 || /^line \d+:/.test(message) ? parts : []
}
