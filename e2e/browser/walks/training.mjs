// Training: a worker comes, a file is refused line by line, a job is paused, resumed and cancelled, another makes a model
// that is proved to a colleague; a GRPO run is held by its anchor, released, and stopped with a candidate.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  await owner.enter(facts.link)
  const read = async (path) => JSON.parse((await owner.ask('GET', `/dashboard/v1/${owner.workspace}/${path}`)).body)
  const told = (text) => page.getByRole('region', { name: 'Messages' }).getByText(text).first().waitFor()
  const idOf = () => new URL(page.url()).pathname.split('/').at(-1)

  step('without a worker the page says how one is started')
  await owner.visit('training', 'Training')
  await page.getByText('No worker has asked for work yet').waitFor()
  await page.locator('pre', { hasText: 'sovereign train worker --install --url' }).waitFor()

  step('a worker comes, and the page sees it')
  writeFileSync(facts.tokenFile, facts.token)
  await page.getByText('Nothing was trained yet').waitFor()
  await owner.check('nothing was trained yet')

  step('a file with bad lines is refused with their numbers, and taken once it is mended')
  await page.keyboard.press('n')
  const form = owner.dialog('New fine-tuning job')
  await form.getByLabel('Base model').selectOption('tiny/bigram')
  await form.getByText(/Its weights are random/).waitFor()
  await form.getByLabel('Examples', { exact: true }).selectOption('file')
  const upload = async (name, text) => form.getByLabel(/^Upload a file/).setInputFiles({ name, mimeType: 'application/jsonl', buffer: Buffer.from(text) })
  await upload('words.jsonl', facts.examples.replace(/\n/, '\nno JSON\n'))
  await form.getByText(/line 2: is not a JSON object/).waitFor()
  await owner.check('a refused file')
  await upload('words.jsonl', facts.examples.repeat(20)) // a job that is not over before it is cancelled
  await form.getByText(/640 examples, every line is well/).waitFor()

  step('the estimate and the hold stand before the button')
  await form.getByLabel('Epochs').fill('100')
  await form.getByLabel('Batch size').fill('1')
  await form.getByText(/^640 examples, 64,000 steps/).waitFor()
  await form.getByText('At most $5.00').waitFor()
  await owner.check('a new job')
  await owner.button('Hold the budget and start', form).click()
  await told('The job is queued')
  await owner.heading('Fine-tuning of tiny/bigram')

  step('its curves are followed while it runs')
  const long = idOf()
  const loss = page.getByRole('figure', { name: 'Loss' })
  await loss.waitFor()
  await owner.button('Table', loss).click()
  await loss.getByRole('cell', { name: 'training' }).nth(2).waitFor()

  step('pause it, resume it, cancel it')
  await owner.button('Pause').click()
  await told(/It saves a checkpoint|It is paused/)
  await page.getByText('Paused. It has a checkpoint').waitFor()
  await owner.button('Resume').click()
  await told('It goes on with the next free worker')
  await owner.button('Cancel').click()
  const ending = owner.dialog('Cancel this run?')
  await owner.check('the end of a job')
  await owner.button('Cancel it', ending).click()
  await told('The job is cancelled')
  await owner.until('the job is cancelled', async () => (await read(`fine-tuning/jobs/${long}`)).status === 'CANCELLED')
  await owner.visit(`training/runs/${long}`, 'Fine-tuning of tiny/bigram')

  step('a short job makes a model')
  const { body } = await owner.ask('POST', `/dashboard/v1/${owner.workspace}/fine-tuning/jobs`, {
    baseModel: 'tiny/bigram', trainingFile: (await read(`fine-tuning/jobs/${long}`)).training_file, suffix: 'words', seed: 7, budgetUsd: 1, hyperparameters: { epochs: 1 },
  })
  const short = JSON.parse(body).id
  await owner.until('the job has succeeded', async () => (await read(`fine-tuning/jobs/${short}`)).status === 'SUCCEEDED')
  await owner.visit('training', 'Training')
  await page.getByRole('grid', { name: 'Runs' }).getByText(/^ft\/bigram-words-/).click()
  await owner.heading(/^ft\/bigram-words-/)
  await owner.settled()
  await owner.check('a run')
  await owner.visit('training?tab=models', 'Training')
  await page.getByText(/^ft\/bigram-words-/).click()
  await owner.heading(/^ft\/bigram-words-/)

  step('its lineage as a graph and as a table')
  const graph = page.getByRole('figure', { name: 'What went into what' })
  await graph.getByRole('link', { name: /^fine-tuning job/ }).focus()
  await owner.button('Table', graph).click()
  await graph.getByRole('cell', { name: 'base model' }).waitFor()
  await owner.visit(`training/models/${idOf()}`, /^ft\/bigram-words-/)

  step('no pool serves it: the page says so, and what to do')
  await page.getByText('not callable').waitFor()
  await page.getByRole('link', { name: 'Serve on own engines' }).waitFor()

  step('prove it: in the browser by a key, and to a colleague with two files')
  await page.keyboard.press('v')
  await page.getByText(/^Valid: every number shown/).waitFor()
  const folder = mkdtempSync(join(tmpdir(), 'colleague-'))
  for (const [role, name] of [['button', 'Model version'], ['link', 'Public keys']]) {
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole(role, { name, exact: true }).click()])
    await file.saveAs(join(folder, file.suggestedFilename()))
  }
  const command = await page.locator('pre', { hasText: 'sovereign verify' }).first().innerText()
  const said = execFileSync('sh', ['-c', `${command.replace(/^sovereign /, '"$PROGRAM" ')} 2>&1`], { cwd: folder, env: { ...process.env, PROGRAM: facts.program } })
  assert.match(String(said), /: valid, signed by /)
  await owner.button('List the files').click()
  const [model] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'model.bin' }).click()])
  assert.equal(model.suggestedFilename(), 'model.bin')

  step('a tool: registered, its secret shown once, tested, deleted')
  await owner.visit('training?tab=tools', 'Training')
  await page.keyboard.press('n')
  const tool = owner.dialog('Register a tool')
  await tool.getByLabel('Name', { exact: true }).fill('look_up')
  await tool.getByLabel('Description').fill('Reads an order.')
  await tool.getByLabel('URL', { exact: true }).fill('https://tools.example.com/orders')
  await tool.getByLabel('Arguments, as a JSON schema').fill('{"type":"object"}')
  await owner.check('a new tool')
  await owner.button('Register', tool).click()
  const secret = owner.dialog('The secret of look_up')
  await secret.waitFor()
  await owner.check('the secret of a tool')
  await owner.button('I have kept it', secret).click()
  await owner.button('Test').click()
  const testing = owner.dialog('Test look_up')
  await owner.button('Call it', testing).click()
  await testing.getByText('no answer').waitFor()
  await owner.check('a tool that does not answer')
  await owner.button('Close', testing).last().click()
  await owner.button('Delete').click()
  await owner.button('Delete', owner.dialog('Delete look_up?')).click()
  await told('The tool is deleted')

  await grpo({ facts, owner, step, read, told, idOf })
  await raft({ facts, owner, step, read, told, idOf })
  await owner.verifyNow()
}

async function grpo({ facts, owner, step, read, told, idOf }) {
  const { page } = owner
  step('a GRPO run, by a measured judge with an anchor')
  await owner.visit('training', 'Training')
  await page.keyboard.press('N')
  const form = owner.dialog('New GRPO run')
  await form.getByLabel('Base model').selectOption('tiny/bigram')
  await form.getByLabel('Prompts', { exact: true }).selectOption({ index: 1 })
  await form.getByLabel('Judge that rewards').selectOption(facts.judge)
  await form.getByLabel('Anchor', { exact: true }).selectOption(facts.anchor)
  await form.getByLabel('Steps', { exact: true }).fill('5000')
  await form.getByLabel('Prompts of a step').fill('1')
  await form.getByLabel('Group').fill('2')
  await form.getByLabel('Budget, $').fill('14')
  await form.getByLabel('Of it for judges, $').fill('10')
  await form.getByText(/^The judge scores at most/).waitFor()
  await owner.check('a new GRPO run')
  await owner.button('Hold the budget and start', form).click()
  await told('The run is queued')
  await owner.heading('Reinforcement (GRPO) of tiny/bigram')
  const id = idOf()
  await page.getByRole('figure', { name: 'Mean reward, with its spread' }).waitFor()

  step('answers that please the judge alone: the anchor holds the run')
  const run = () => read(`grpo/runs/${id}`)
  const { reward_session_id: session } = await run()
  await owner.until('the run is held', async () => {
    await please(facts, session)
    const now = await run()
    return now.held && now.status === 'PAUSED'
  })
  await owner.visit('training?show=held', 'Training')
  await page.getByRole('grid', { name: 'Runs' }).getByText('held').waitFor()
  await owner.visit(`training/runs/${id}`, 'Reinforcement (GRPO) of tiny/bigram')
  await page.getByRole('alert').getByText('The anchor holds this run').waitFor()

  step('it is released in its reward session, and goes on')
  await page.getByRole('link', { name: 'Its reward session' }).click()
  await owner.button('Release').click()
  const release = owner.dialog('Let it score again?')
  await release.getByLabel('Why').fill('The other answers were not the run’s.')
  await owner.button('Release', release).click()
  await told('The session scores again')
  await owner.until('the run goes on', async () => ['QUEUED', 'RUNNING'].includes((await run()).status))

  step('stop it: its last checkpoint waits for an eval')
  await page.goto(`${owner.base}/dashboard/w/${owner.workspace}/training/runs/${id}`)
  await owner.button('Stop').click()
  await owner.button('Stop it', owner.dialog('Stop this run?')).click()
  await told('The run ends')
  await owner.until('there is a candidate', async () => Boolean((await run()).candidate))
  await owner.visit('training?show=candidates', 'Training')
  await page.getByText('1 candidate waits for an eval').waitFor()
  await owner.visit('', 'Home')
  await page.getByRole('link', { name: 'Candidates of training' }).waitFor()
}

async function raft({ facts, owner, step, read, told, idOf }) {
  const { page } = owner
  step('a RAFT round: its plan before the button, its stages, what it proved')
  await owner.visit('training?tab=rounds', 'Training')
  await page.getByText('No rounds yet').waitFor()
  await page.keyboard.press('n')
  const form = owner.dialog('New RAFT round')
  await form.getByLabel('Base model').selectOption('tiny/bigram')
  await form.getByLabel('Prompts', { exact: true }).selectOption({ index: 1 })
  await form.getByLabel('Judge that rewards').selectOption(facts.anchor)
  await form.getByLabel('Least grade').fill('0')
  await form.getByLabel('Budget, $').fill('4')
  await form.getByText(/are held out; .* answers are scored/).waitFor()
  await owner.check('a new RAFT round')
  await owner.button('Hold the budget and start', form).click()
  await told('The round has begun')
  await owner.heading('RAFT round 1 of tiny/bigram')
  const id = idOf()
  await owner.until('the round has ended', async () => (await read(`raft/rounds/${id}`)).status !== 'RUNNING')
  const round = await read(`raft/rounds/${id}`)
  assert.equal(round.status, 'SUCCEEDED', JSON.stringify(round.error))
  await owner.visit(`training/rounds/${id}`, 'RAFT round 1 of tiny/bigram')
  await page.getByText(/It was the last round that was asked for/).waitFor()
  await page.getByRole('figure', { name: /Mean grade/ }).waitFor()
  await owner.visit('training?tab=rounds', 'Training')
}

let made = 0

/** Scores answers as a run does that has learnt what the judge likes. A session that is held meanwhile refuses them. */
async function please(facts, session) {
  const items = Array.from({ length: 32 }, (_, i) => ({ id: String(i), prompt: `Question ${++made}`, completion: `Answer ${made} [truth=pass] [sim quality=0.10]` }))
  const answer = await fetch(`${facts.base}/v1/reward/sessions/${session}/score`, {
    method: 'POST', headers: { Authorization: `Bearer ${facts.key}`, 'Content-Type': 'application/json' }, body: JSON.stringify({ step: 'pleased', items }),
  })
  assert.ok([200, 412].includes(answer.status), `${answer.status} ${await answer.text()}`)
}
