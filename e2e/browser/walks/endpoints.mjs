// Dedicated endpoints: one that has failed says why; another is made of a trained model with its price before the button,
// answers a chat, is stopped, started and deleted. The model is adopted by an alias, which needs a proof.
import assert from 'node:assert/strict'

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  await owner.enter(facts.link)
  const read = async (path) => JSON.parse((await owner.ask('GET', `/dashboard/v1/${owner.workspace}/${path}`)).body)

  step('an engine that cannot load: the alarm leads to its last lines')
  await owner.until('the endpoint has failed', async () => (await read(`dedicated-endpoints/${facts.failing}`)).status === 'FAILED')
  await owner.visit('', 'Home')
  await page.getByRole('link', { name: 'The dedicated endpoint Crashing has stopped' }).click()
  await owner.heading('Crashing')
  await page.getByRole('region', { name: 'The last lines of the engine' }).getByText('CUDA out of memory').waitFor()
  await owner.visit(`training/endpoints/${facts.failing}`, 'Crashing', { as: 'an endpoint that has failed' })

  step('delete it: its name is typed')
  await owner.button('Delete…').click()
  const gone = owner.dialog('Delete Crashing?')
  await gone.getByLabel(/^Type Crashing/).fill('Crashing')
  await owner.check('the end of an endpoint')
  await owner.button('Delete', gone).last().click()
  await owner.told('The endpoint is deleted')
  await page.getByText('No dedicated endpoints yet').waitFor()
  await page.locator('pre', { hasText: '/v1/dedicated-endpoints' }).waitFor()
  await owner.visit('training?tab=endpoints', 'Training', { as: 'endpoints, none yet' })

  step('a trained model can be called, and leads to the form')
  await owner.visit('training?tab=models', 'Training')
  await page.getByRole('grid', { name: 'Models' }).getByText('callable').waitFor()
  await owner.visit(`training/models/${facts.version}`, /^ft\/bigram-/)
  await page.getByText('callable', { exact: true }).waitFor()
  await unproven(owner, step)
  await adoption(owner, step, read)
  await page.getByRole('link', { name: 'Serve on own engines' }).click()

  step('the price and what is set aside stand before the button')
  const form = owner.dialog('New dedicated endpoint')
  await form.getByText('Still needed: a name.').waitFor()
  await form.getByLabel('Name', { exact: true }).fill('Support')
  await form.getByLabel('Replicas, at most').fill('2')
  await form.getByLabel('Idle time-out, seconds').fill('3600')
  await form.getByText('An hour of one replica costs $36.00, of all 2 $72.00.').waitFor()
  await form.getByLabel('An hour may cost, $').fill('50')
  await form.getByText('All replicas cost $72.00 an hour').waitFor()
  assert.ok(await owner.button('Set it aside and start', form).isDisabled())
  await owner.check('a new endpoint')
  await form.getByLabel('An hour may cost, $').fill('')
  await owner.button('Set it aside and start', form).click()
  await owner.told('The endpoint starts')
  await owner.heading('Support')
  await page.getByText('It answers.').waitFor()
  const id = new URL(page.url()).pathname.split('/').at(-1)

  step('it is called by the model id that the page shows')
  const { model } = await read(`dedicated-endpoints/${id}`)
  await page.locator('pre', { hasText: model }).waitFor()
  assert.equal(await chat(facts, model), 200)
  await owner.visit(`training/endpoints/${id}`, 'Support')
  await page.getByRole('tab', { name: 'Python' }).click()
  await page.locator('pre', { hasText: 'from openai import OpenAI' }).waitFor()

  step('its hold has its name in the wallet, and leads back')
  await owner.go('wallet', 'Wallet')
  await page.getByText('Dedicated endpoint', { exact: false }).getByRole('link').click()
  await owner.heading('Support')

  step('stop it: the confirmation says what ends')
  await owner.button('Stop').click()
  const stop = owner.dialog('Stop Support?')
  await stop.getByText(/New requests to .* are refused until it is started again/).waitFor()
  await owner.check('a stop')
  await owner.button('Stop it', stop).click()
  await owner.told('The endpoint stops')
  await page.getByText('It costs nothing. Its model id stays its own.').waitFor()
  assert.equal(await chat(facts, model), 503)

  step('start it, at the price of now')
  await owner.button('Start').click()
  const start = owner.dialog('Start Support?')
  await start.getByText(/of all 2 replicas costs \$72\.00 now/).waitFor()
  await owner.check('a start')
  await owner.button('Set $72.00 aside and start', start).click()
  await page.getByText('It answers.').waitFor()
  await owner.visit('training?tab=endpoints', 'Training')

  step('on a phone')
  const phone = await open('owner on a phone', { narrow: true, state: await page.context().storageState() })
  phone.workspace = owner.workspace
  for (const [path, heading] of [['training?tab=endpoints', 'Training'], [`training/endpoints/${id}`, 'Support']]) {
    await phone.visit(path, heading)
    const over = await phone.page.evaluate(() => document.scrollingElement.scrollWidth - document.documentElement.clientWidth)
    assert.ok(over <= 0, `${path} is ${over} pixels too wide`)
  }
  await phone.verifyNow()
  await phone.leave()

  step('delete it')
  await page.getByRole('grid', { name: 'Endpoints' }).getByText('Support', { exact: true }).click()
  await owner.heading('Support')
  await owner.button('Delete…').click()
  const last = owner.dialog('Delete Support?')
  await last.getByLabel(/^Type Support/).fill('Support')
  await owner.button('Delete', last).last().click()
  await owner.told('The endpoint is deleted')
  assert.equal(await chat(facts, model), 404)
  await owner.verifyNow()
}

/** Without an eval an adoption is refused, with what would prove it. */
async function unproven(owner, step) {
  const { page } = owner
  step('adopt it: without a proof the refusal says what would be one')
  await owner.button('Adopt…').click()
  const form = owner.dialog(/^Adopt ft\/bigram-/)
  await form.getByLabel('Alias').selectOption('assistant')
  await form.getByText('No eval compares it with sim/chat yet').waitFor()
  await owner.button('Adopt it', form).click()
  await form.getByRole('alert').getByText('What would prove it').waitFor()
  await owner.check('an adoption without a proof')
  await owner.button('Cancel', form).click()
}

/** With an eval that proves it, the alias sends a share of its requests to the model. */
async function adoption(owner, step, read) {
  const { page } = owner
  step('adopt it by another alias: the eval that compared it with that alias’s model is offered')
  await owner.button('Adopt…').click()
  const form = owner.dialog(/^Adopt ft\/bigram-/)
  await form.getByLabel('Alias').selectOption('letters')
  await form.getByLabel('Eval that proves it').selectOption({ label: 'Letters · done' })
  await form.getByLabel('Percent to it').fill('20')
  await owner.check('an adoption with its proof')
  await owner.button('Adopt it', form).click()
  await owner.told('letters uses it')
  await page.getByText(/^adopted/).waitFor()
  const alias = await read('aliases/letters')
  assert.equal(alias.canary_percent, 20)
  assert.match(alias.canary_model, /^ft\/bigram-/)
}

/** The status of a chat with a model, as a program gets it. */
async function chat(facts, model) {
  const answer = await fetch(`${facts.base}/v1/chat/completions`, {
    method: 'POST', headers: { Authorization: `Bearer ${facts.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: 'say red' }], max_tokens: 8 }),
  })
  await answer.text()
  return answer.status
}
