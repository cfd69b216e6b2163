// Many logs: filtered, scrolled, saved as a view, followed as they come, frozen into a dataset.
import assert from 'node:assert/strict'

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  await owner.enter(facts.link)
  const made = JSON.parse((await owner.ask('POST', `/dashboard/api/w/${owner.workspace}/keys`, { name: 'walk' })).body)

  await owner.visit('logs', 'Logs')
  const count = page.getByText(/exchanges?( in this view)?$/).first()
  await page.getByText(`${facts.rows.toLocaleString('en')} exchanges`).waitFor()
  const grid = page.getByRole('grid', { name: 'Logged exchanges' })
  assert.equal(await grid.getAttribute('aria-rowcount'), String(facts.rows + 1))

  step('filter by tag, by model, by both; each leaves fewer rows, and the address has it')
  const total = async () => Number((await count.innerText()).replaceAll(/\D/g, ''))
  await choose(owner, 'Tag', 'task-0')
  const tagged = await fewer(owner, total, facts.rows)
  await choose(owner, 'Model', 'provider/model-3')
  const both = await fewer(owner, total, tagged)
  await owner.settled()
  await owner.check('filtered logs')
  const asked = await owner.ask('GET', `/dashboard/v1/${owner.workspace}/logs?tag=task-0&model=provider%2Fmodel-3&limit=1`)
  assert.equal(JSON.parse(asked.body).total, both)

  step('the end of the list is a key away')
  await grid.focus()
  await page.keyboard.press('End')
  await grid.locator(`[aria-rowindex="${both + 1}"]`).waitFor()
  await owner.settled()

  step('save the view, open it from elsewhere, delete it, take that back')
  await owner.button('Views').click()
  await page.getByRole('menuitem', { name: 'Save this view…' }).click()
  const saving = owner.dialog('Save this view')
  await saving.getByLabel('Name').fill('Two filters')
  await owner.check('saving a view')
  await owner.button('Save', saving).click()
  await owner.told('View saved')
  await owner.go('logs', 'Logs')
  await owner.button('Views').click()
  await page.getByRole('menuitem', { name: 'Two filters' }).first().click()
  await page.waitForURL(/model=provider/)
  await owner.until('the view is open', async () => await total() === both)
  await owner.button('Views').click()
  await page.getByRole('menuitem', { name: 'Two filters' }).last().click()
  await owner.told('Deleted: Two filters')
  await owner.button('Undo', page.getByRole('region', { name: 'Messages' })).last().click()
  await owner.until('the view is back', async () =>
    (await owner.ask('GET', `/dashboard/api/w/${owner.workspace}/views?page=logs`)).body.includes('Two filters'))

  step('freeze the view into a dataset, export it, delete it')
  await owner.button('Dataset').click()
  const freeze = owner.dialog('Freeze a dataset')
  await freeze.getByLabel('Name').fill('frozen')
  await owner.check('freezing a dataset')
  await owner.button('Freeze', freeze).click()
  await owner.told('Frozen: frozen')
  await owner.go('datasets', 'Datasets')
  await page.getByRole('grid', { name: 'Datasets' }).getByText('frozen', { exact: true }).click()
  await owner.heading('frozen')
  await owner.settled()
  await owner.check('a dataset')
  const id = new URL(page.url()).pathname.split('/').at(-1)
  const rows = (await owner.ask('GET', `/dashboard/v1/${owner.workspace}/datasets/${id}/export`)).body.trim().split('\n')
  for (const row of rows) assert.ok(JSON.parse(row).messages.length > 0)
  step('another, from the page of datasets')
  await owner.go('datasets', 'Datasets')
  await owner.button('Freeze from logs').click()
  const second = owner.dialog('Freeze from logs')
  await second.getByLabel('Name').fill('rare')
  await second.getByLabel('Tag').fill('task-20')
  await second.getByText(/exchanges? match/).waitFor()
  await owner.settled()
  await owner.check('freezing from logs')
  await owner.button('Freeze', second).click()
  await owner.told('rare is frozen')
  await owner.heading('rare')
  await owner.go(`datasets/${id}`, 'frozen')
  await owner.button('Delete…').click()
  const ask = owner.dialog('Delete the dataset')
  await ask.getByLabel(/to confirm/).fill('frozen')
  await owner.button('Delete', ask).click()
  await owner.told('Dataset deleted')

  await owner.go('logs', 'Logs')
  step('follow: what comes is shown as it comes, until it is paused')
  await page.locator('h1').click()
  await page.keyboard.press('f')
  await page.getByText('Following: waiting for the next exchange.').waitFor()
  const ending = await until(facts, made.api_key, () => page.getByText(/Following: \d+ exchange/).isVisible())
  assert.ok(ending)
  await grid.getByText('as it comes').first().waitFor()
  await page.keyboard.press('f')
  await page.getByText(/Following/).waitFor({ state: 'detached' })
  await owner.verifyNow()
}

/** Chooses a value of a filter, once its values are read. */
async function choose({ page }, name, value) {
  const filter = page.getByLabel(name, { exact: true })
  await filter.focus()
  await filter.locator(`option[value="${value}"]`).waitFor({ state: 'attached' })
  await filter.selectOption(value)
}

async function fewer(owner, total, before) {
  let now = before
  await owner.until('fewer rows are left', async () => {
    now = await total()
    return now > 0 && now < before
  })
  return now
}

/** Asks the model until something holds: a follower sees what comes after it began, and nothing tells when that was. */
async function until(facts, key, holds) {
  for (let n = 0; n < 1000; n++) {
    const answer = await fetch(`${facts.base}/v1/chat/completions`, {
      method: 'POST', headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ model: 'sim/chat', messages: [{ role: 'user', content: `as it comes ${n}` }] }),
    })
    assert.equal(answer.status, 200, await answer.text())
    if (await holds()) return true
  }
  return false
}
