// Payloads in everything that people and models write are text on every page: nothing runs, nothing is loaded.
import assert from 'node:assert/strict'

export default async function ({ facts, open, step }) {
  const { payload } = facts
  const owner = await open('owner')
  const { page } = owner
  await owner.enter(facts.link)

  step('payloads that the dashboard takes')
  const base = `/dashboard/api/w/${owner.workspace}`
  const email = "${alert`1`}'&amp/*@x.test" // what an address may have
  const make = async (path, body) => {
    const made = await owner.ask('POST', base + path, body)
    assert.ok(made.status < 300, `${path}: ${made.status} ${made.body}`)
    return JSON.parse(made.body)
  }
  const source = { kind: 'logs', filters: {} }
  const queue = await make('/queues', { name: payload, criterion_id: facts.judge, source, graders_per_item: 1 })
  await make('/keys', { name: payload })
  await make('/invitations', { email, role: 'member' })
  await make('/views', { page: 'logs', name: payload, query: 'tag=x', shared: true })

  const shows = async (path, heading, ...texts) => {
    await owner.go(path, heading)
    for (const text of texts.length ? texts : [payload]) await seen(page, text)
    await inert(owner, path)
  }
  await owner.visit('', 'Home')
  await inert(owner, 'Home')
  await shows('logs', 'Logs', '<img src=x onerror=alert(1)>')
  step('an exchange, as text and as Markdown')
  await page.locator('h1').click()
  for (const row of [1, 2]) {
    await page.keyboard.press('j')
    await page.keyboard.press('Enter')
    const drawer = owner.dialog('Exchange')
    await seen(drawer, payload)
    const plain = drawer.getByRole('button', { name: 'Markdown' })
    while (await plain.count() > 0) await plain.first().click()
    await inert(owner, `row ${row}, as Markdown`)
    await page.keyboard.press('Escape')
    await drawer.waitFor({ state: 'detached' })
  }
  step('its saved view')
  await owner.button('Views').click()
  await page.getByRole('menuitem', { name: payload }).first().waitFor()
  await inert(owner, 'saved views')
  await page.keyboard.press('Escape')

  await shows('traces', 'Traces', '<img src=x onerror=alert(1)>')
  await shows(`traces/${encodeURIComponent(payload.slice(0, 28))}`, 'Run')
  await shows('review', 'Review')
  await shows(`review/${queue.id}`, payload)
  for (const view of ['items', 'progress', 'people', 'settings']) await shows(`review/${queue.id}?view=${view}`, payload)
  await shows('judges', 'Judges')
  await shows(`judges/${facts.judge}`, payload)
  for (const tab of ['labels', 'calibrations', 'versions']) await shows(`judges/${facts.judge}?tab=${tab}`, payload)
  await shows(`judges/${facts.judge}/certificate`, `Certificate of ${payload}`)
  await shows(`judges/${facts.judge}/adjudication`, 'Adjudication')
  await shows('datasets', 'Datasets')
  await shows(`datasets/${facts.dataset}`, payload)
  await shows('evals', 'Evals')
  await shows(`evals/${facts.eval}`, payload)
  await shows('rewards', 'Rewards')
  await shows(`rewards/${facts.session}`, payload)
  await shows('aliases', 'Aliases', 'support')
  await shows('wallet', 'Wallet', 'Usage and cost')
  await shows('settings?tab=keys', 'Settings')
  await shows('settings?tab=team', 'Settings', email)
  await shows('settings?tab=audit', 'Settings', /invit/)
  await owner.verifyNow()
}

/** The text stands somewhere where it is seen. */
const seen = (where, text) => where.getByText(text).filter({ visible: true }).first().waitFor()

/** Nothing of a payload became an element. */
async function inert({ page, troubles }, where) {
  const found = await page.evaluate(() => {
    const made = document.querySelectorAll('img, iframe, object, embed, [onerror], [onload], a[href^="javascript:" i]')
    return [...made].map((one) => one.outerHTML.slice(0, 200))
  })
  if (found.length) troubles.push(`${where}: ${found.join(', ')}`)
}
