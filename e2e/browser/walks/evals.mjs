// An eval: started from a form with pasted cases, its gate, a case that becomes a label, the same again.
import assert from 'node:assert/strict'

const cases = 12

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  await owner.enter(facts.link)
  await owner.visit('evals', 'Evals', { as: 'evals, none yet' })

  step('fill the form: models, judge, cases of a file as OpenAI has them')
  await page.keyboard.press('n')
  const form = owner.dialog('New eval')
  await form.getByLabel('Name').fill('large')
  await form.getByLabel('Baseline', { exact: true }).fill('sim/chat')
  await form.getByLabel(/Candidates/).first().fill('sim/chat-large')
  await page.keyboard.press('Enter')
  await form.getByLabel('Judge', { exact: true }).selectOption(facts.judge)
  await form.getByLabel('Cases', { exact: true }).selectOption('inline')
  const lines = Array.from({ length: cases }, (_, i) => JSON.stringify({ input: [{ role: 'user', content: `Where is order ${i}?` }] }))
  await form.getByLabel('A JSONL file').setInputFiles({ name: 'cases.jsonl', mimeType: 'text/plain', buffer: Buffer.from(lines.join('\n')) })
  await form.getByText(`${cases} cases`).first().waitFor()
  step('its price is shown before')
  await form.getByText(/requests to models, about/).waitFor()
  await owner.settled()
  await owner.check('a new eval')
  await owner.button('Start', form).click()
  await owner.told('large has begun')
  await owner.heading('large')
  const id = new URL(page.url()).pathname.split('/').at(-1)
  await owner.until('the eval is done', async () =>
    JSON.parse((await owner.ask('GET', `/dashboard/v1/${owner.workspace}/evals/${id}`)).body).status === 'DONE')

  await owner.visit(`evals/${id}`, 'large')
  step('its gate: another check, and the answer of the API')
  await page.getByLabel('Pass rate at most this much lower').fill('0.99')
  const [gate] = await Promise.all([
    page.waitForResponse((answer) => /\/gate\?.*max_regression=0.99/.test(answer.url())), page.keyboard.press('Enter'),
  ])
  await page.waitForURL(/g_max_regression=0.99/)
  await owner.settled()
  assert.equal(await page.getByText(/^(passes|refuses)$/).first().innerText(), gate.status() === 200 ? 'passes' : 'refuses')
  await owner.check('a gate')

  step('a case becomes a label')
  await page.getByRole('grid', { name: 'Cases' }).getByRole('row').nth(1).click()
  const drawer = page.getByRole('dialog')
  await drawer.getByText('Make a label').first().click()
  await drawer.getByLabel('Why').first().fill('It answers.')
  await owner.settled()
  await owner.check('a case')
  await owner.button('Pass', drawer).first().click()
  await owner.told('Labelled: pass')
  const labels = (await owner.ask('GET', `/dashboard/v1/${owner.workspace}/labels?criterion_id=${facts.judge}&limit=5`)).body
  assert.ok(labels.includes('It answers.'), labels)
  await page.keyboard.press('Escape')
  await drawer.waitFor({ state: 'detached' })

  step('the cases as a file')
  const exported = (await owner.ask('GET', `/dashboard/v1/${owner.workspace}/evals/${id}/cases/export`)).body.trim().split('\n')
  assert.equal(exported.length, cases)
  step('again: the form has what it had')
  await page.getByRole('link', { name: 'Again' }).click()
  assert.equal(await owner.dialog('New eval').getByLabel('Name').inputValue(), 'large')
  await page.keyboard.press('Escape')
  await owner.verifyNow()
}
