// What is trained and served before the pictures: a fine-tuning job, a GRPO run and a RAFT round of the demo, by a worker that really
// trains.
import { execFileSync, spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** ask calls the API of the demo, and start the dashboard's own; data is the folder of the server. Answers when all have ended. */
export async function train({ root, data, base, ask, start, patience }) {
  const token = join(data, 'worker.token')
  const minted = execFileSync(join(root, 'bin/sovereign'), ['admin', 'worker', 'create', 'laptop', '--data-dir', join(data, 'data'), '--json'])
  writeFileSync(token, JSON.parse(String(minted)).token)
  const worker = spawn('python3', ['-m', 'sovereign_trainer', 'work', '--url', base, '--token-file', token, '--work', join(data, 'work')], {
    env: { ...process.env, PYTHONPATH: join(root, 'trainer/src'), PYTHONDONTWRITEBYTECODE: '1', NO_PROXY: '127.0.0.1', no_proxy: '127.0.0.1' }, stdio: 'ignore',
  })
  const stop = () => worker.kill('SIGKILL')
  process.on('exit', stop)
  const until = async (holds) => {
    for (const end = Date.now() + patience; !(await holds()); await new Promise((later) => setTimeout(later, 500))) {
      if (Date.now() > end) throw new Error('the training has not ended')
    }
  }
  try {
    await until(async () => (await ask('GET', 'fine-tuning/models'))?.length > 0)
    const { data: judges } = await ask('GET', 'criteria')
    const { data: sets } = await ask('GET', 'datasets')
    const of = (name) => judges.find((one) => one.name === name).id
    const datasetId = sets.find((one) => one.role === 'train').id
    const job = await ask('POST', 'fine-tuning/jobs', {
      baseModel: 'tiny/bigram', datasetId, suffix: 'support', seed: 7, budgetUsd: 3, hyperparameters: { epochs: 12, learningRate: 0.02, checkpointEvery: 40 },
    })
    const run = await ask('POST', 'grpo/runs', {
      baseModel: 'tiny/bigram', datasetId, criterionId: of('Answers the question'), anchorCriterionId: of('Answers the question (anchor)'), seed: 7, maxSteps: 30, groupSize: 4,
      maxCompletionTokens: 40, budgetUsd: 4,
    })
    const round = await start('raft/rounds', {
      baseModel: 'tiny/bigram', datasetId, criterionId: of('Answers the question'), seed: 3, samplesPerPrompt: 3, minGrade: 0.5, maxCompletionTokens: 30, rounds: 2, budgetUsd: 6,
    })
    await ask('POST', 'environment/tools', {
      name: 'look_up_order', description: 'Reads an order by its number: what was bought, when it was sent, and where it is.', endpointUrl: 'https://tools.example.com/orders',
      parameters: { type: 'object', properties: { order: { type: 'string' } }, required: ['order'] },
    })
    const ended = async (path) => ['SUCCEEDED', 'FAILED'].includes((await ask('GET', path)).status)
    await until(async () => (await ended(`fine-tuning/jobs/${job.id}`)) && (await ended(`grpo/runs/${run.id}`)) && ended(`raft/rounds/${round.id}`))
    const version = (await ask('GET', `fine-tuning/jobs/${job.id}`)).model_version_id
    return { job: job.id, run: run.id, round: round.id, version, ...await endpoints(ask, version, until) }
  } finally {
    stop()
  }
}

/** The options of a server whose endpoints are photographed: an engine for small models, and one that cannot load. */
export const served = (root) => ['--training-prices', 'cpu=3.60', '--serving-engines', JSON.stringify([
  {
    name: 'small', env: { PYTHONPATH: join(root, 'trainer/src'), PYTHONDONTWRITEBYTECODE: '1' },
    command: ['sh', '-c', `(while kill -0 ${process.pid}; do sleep 1; done; kill $$) 2>/dev/null & exec "$@"`, 'engine', // which outlives its server, and not this script
      'python3', '-m', 'sovereign_trainer', 'serve', '--model', '{model_path}', '--name', '{name}', '--host', '{host}', '--port', '{port}'],
  },
  {
    name: 'broken', base_models: ['large/*'], gpu_types: ['cpu'],
    command: ['sh', '-c', 'for n in $(seq 24); do echo "INFO loading shard $n of 24"; done; echo "RuntimeError: out of memory: 2.0 GiB asked for, 1.0 GiB free"; exit 1', '{port}'],
  },
]), '--serving-pool-engine', 'small']

/** An endpoint that answers, and one that has failed. */
async function endpoints(ask, version, until) {
  const good = await ask('POST', 'dedicated-endpoints', { name: 'Support', modelVersionId: version, maxReplicas: 2, idleTimeoutSeconds: 3600 })
  const bad = await ask('POST', 'dedicated-endpoints', { name: 'Large', baseModel: 'large/instruct' })
  const is = async (one, status) => (await ask('GET', `dedicated-endpoints/${one.id}`)).status === status
  await until(async () => (await is(good, 'RUNNING')) && is(bad, 'FAILED'))
  return { endpoint: good.id, failed: bad.id }
}
