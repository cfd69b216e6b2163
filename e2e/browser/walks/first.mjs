// The first minutes: a link, a key, a chat with it, consent, the row in Logs, its drawer, and out again.
import assert from 'node:assert/strict'

const session = '**/dashboard/api/session'
const link = '**/dashboard/api/session/link'

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  const early = await answerLate(page)
  await owner.enter(facts.link)
  assert.ok(await early.nobody, 'the page asks who is signed in before it spends the link')
  await page.unroute(session)
  await page.unroute(link)
  await owner.visit('', 'Home', { as: 'Home of a newcomer' })

  await owner.visit('settings', 'Settings')
  step('mint a key')
  await owner.button('New key').click()
  const mint = owner.dialog('New key')
  await mint.getByLabel('Name').fill('walk')
  await owner.button('Make the key', mint).click()
  const shown = owner.dialog('The key walk')
  await shown.waitFor()
  await owner.check('a new key')
  const key = /sk_sovereign_[0-9a-z]{47}/.exec(await shown.innerText())?.[0]
  assert.ok(key, 'the key is shown once')
  await owner.button('I have kept it', shown).click()
  await shown.waitFor({ state: 'detached' })
  assert.ok(!(await page.content()).includes(key), 'the key is gone from the page')

  step('use the key')
  await ask(facts, key, 'before consent')

  await owner.visit('logs', 'Logs', { as: 'logs without consent' })
  step('turn logging on')
  await page.getByRole('heading', { name: 'Logging is off' }).waitFor()
  await owner.button('Turn logging on').click()
  await owner.told('Logging is on')
  await ask(facts, key, 'a question of the walk', { 'X-Service-Tag': 'walked' })
  await ask(facts, key, 'another question', { 'X-Service-Tag': 'other' })

  step('the rows are in Logs')
  const grid = page.getByRole('grid', { name: 'Logged exchanges' })
  await owner.until('the rows are logged', async () => {
    await page.reload()
    await owner.settled()
    return await grid.getByRole('row').count() === 3
  })
  step('filter by tag')
  const tag = page.getByLabel('Tag', { exact: true })
  await tag.focus()
  await tag.locator('option', { hasText: 'walked' }).waitFor({ state: 'attached' })
  await tag.selectOption('walked')
  await page.waitForURL(/tag=walked/)
  await page.waitForFunction(() => document.querySelectorAll('[role=grid] [role=row]').length === 2)

  step('open the drawer by keyboard')
  await page.keyboard.press('Escape')
  await page.locator('h1').click()
  await page.keyboard.press('j')
  await page.keyboard.press('Enter')
  const drawer = owner.dialog('Exchange')
  await drawer.getByText('a question of the walk').first().waitFor()
  await owner.settled()
  await owner.check('the drawer of a row')
  step('a shared link opens the same view')
  const second = await page.context().newPage()
  await second.goto(page.url())
  await second.getByRole('dialog', { name: 'Exchange' }).getByText('a question of the walk').first().waitFor()
  await second.close()
  await page.keyboard.press('Escape')
  await drawer.waitFor({ state: 'detached' })

  step('sign out')
  await page.getByRole('button', { name: /@/ }).click()
  await page.getByRole('menuitem', { name: 'Sign out' }).click()
  await page.waitForURL(/sign-in/)
  await owner.settled()
  await owner.check('sign in')
  const { status } = await owner.ask('GET', `/dashboard/v1/${owner.workspace}/logs`)
  assert.equal(status, 401)
  await owner.verifyNow()
}

/**
 * The page asks who is signed in, and spends the link. The first answer, nobody, is made before that of the link and
 * comes after it. Returns whether it was nobody.
 */
async function answerLate(page) {
  let made
  const early = { nobody: new Promise((resolve) => { made = resolve }) }
  const spent = page.waitForResponse((response) => response.url().endsWith('/session/link')).catch(() => undefined)
  await page.route(link, async (route) => {
    await early.nobody
    await route.continue()
  })
  await page.route(session, async (route) => {
    try {
      const answer = await route.fetch()
      made((await answer.json()).signed_in === false)
      await spent
      await page.evaluate(() => new Promise((drawn) => setTimeout(drawn, 100))) // it has read the link's answer
      await route.fulfill({ response: answer })
    } catch {
      made(false) // too late, unless there was no answer: the page has gone on, and no longer waits for this one
    }
  })
  return early
}

async function ask(facts, key, content, headers = {}) {
  const answer = await fetch(`${facts.base}/v1/chat/completions`, {
    method: 'POST', headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify({ model: 'sim/chat', messages: [{ role: 'user', content }] }),
  })
  assert.equal(answer.status, 200, await answer.text())
}
