// What is photographed: a name for the file, a title, where it is below the workspace, and what is done before the picture.

/** The pages of a demo. find answers ids from the API of the workspace; trained has those of what was trained, if anything was. */
export async function pages(find, trained) {
  const judge = await find('/v1/criteria', (c) => c.name === 'Answers the question')
  const [grading, runs] = [await find('/api/queues', (q) => q.criterion_id && q.source?.kind === 'logs'), await find('/api/queues', (q) => q.source?.kind === 'traces')]
  const dataset = await find('/v1/datasets', (d) => !d.name.endsWith('-eval'))
  const evaluation = await find('/v1/evals', (e) => e.name.startsWith('Large'))
  const session = await find('/v1/reward/sessions')
  return [
    { name: 'home', title: 'Home', path: '' },
    { name: 'logs', title: 'Logs', path: 'logs' },
    { name: 'log', title: 'Logs: one exchange', path: 'logs', keys: ['j', 'j', 'Enter'] },
    { name: 'traces', title: 'Traces', path: 'traces' },
    { name: 'trace', title: 'Traces: a run', path: 'traces/zephyrine-refund-12' },
    { name: 'review', title: 'Review', path: 'review' },
    { name: 'grading', title: 'Review: grading', path: `review/${grading}` },
    { name: 'grading-run', title: 'Review: grading a run', path: `review/${runs}` },
    { name: 'progress', title: 'Review: progress', path: `review/${grading}?view=progress` },
    { name: 'judges', title: 'Judges', path: 'judges' },
    { name: 'judge', title: 'Judges: a judge', path: `judges/${judge}` },
    { name: 'calibrations', title: 'Judges: calibrations', path: `judges/${judge}?tab=calibrations` },
    { name: 'certificate', title: 'Judges: certificate', path: `judges/${judge}/certificate` },
    { name: 'adjudication', title: 'Judges: adjudication', path: `judges/${judge}/adjudication` },
    { name: 'datasets', title: 'Datasets', path: 'datasets' },
    { name: 'dataset', title: 'Datasets: a dataset', path: `datasets/${dataset}` },
    { name: 'evals', title: 'Evals', path: 'evals' },
    { name: 'eval', title: 'Evals: the gate', path: `evals/${evaluation}` },
    { name: 'aliases', title: 'Aliases', path: 'aliases' },
    { name: 'alias', title: 'Aliases: a canary', path: 'aliases/assistant' },
    { name: 'rewards', title: 'Rewards', path: 'rewards' },
    { name: 'session', title: 'Rewards: a session', path: `rewards/${session}` },
    ...(trained ? [
      { name: 'training', title: 'Training: runs', path: 'training' },
      { name: 'training-new', title: 'Training: a new job', path: `training?new=job&model=tiny/bigram&dataset=${dataset}&budget=3` },
      { name: 'training-job', title: 'Training: a fine-tuning job', path: `training/runs/${trained.job}` },
      { name: 'training-run', title: 'Training: a GRPO run', path: `training/runs/${trained.run}` },
      { name: 'models', title: 'Training: models', path: 'training?tab=models' },
      { name: 'model', title: 'Training: a model and its lineage', path: `training/models/${trained.version}` },
      { name: 'endpoints', title: 'Training: dedicated endpoints', path: 'training?tab=endpoints' },
      { name: 'endpoint-new', title: 'Training: a new endpoint', path: `training?tab=endpoints&new=true&name=Support&model=${trained.version}&max=2` },
      { name: 'endpoint', title: 'Training: an endpoint', path: `training/endpoints/${trained.endpoint}` },
      { name: 'endpoint-failed', title: 'Training: an endpoint that has failed', path: `training/endpoints/${trained.failed}` },
      { name: 'rounds', title: 'Training: RAFT rounds', path: 'training?tab=rounds' },
      { name: 'round', title: 'Training: a RAFT round', path: `training/rounds/${trained.round}` },
      { name: 'tools', title: 'Training: environment tools', path: 'training?tab=tools' },
    ] : []),
    { name: 'wallet', title: 'Wallet: usage by tag', path: 'wallet?by=tag' },
    { name: 'ledger', title: 'Wallet: ledger', path: 'wallet?tab=ledger' },
    { name: 'keys', title: 'Settings: keys', path: 'settings' },
    { name: 'team', title: 'Settings: team', path: 'settings?tab=team' },
    { name: 'logging', title: 'Settings: logging', path: 'settings?tab=logging' },
    { name: 'limits', title: 'Settings: limits', path: 'settings?tab=limits' },
    { name: 'evidence', title: 'Settings: evidence', path: 'settings?tab=evidence' },
    { name: 'providers', title: 'Settings: providers', path: 'settings?tab=providers' },
    { name: 'notifications', title: 'Settings: notifications', path: 'settings?tab=notifications' },
    { name: 'account', title: 'Settings: your account', path: 'settings?tab=account' },
    { name: 'audit', title: 'Settings: audit trail', path: 'settings?tab=audit' },
  ]
}
