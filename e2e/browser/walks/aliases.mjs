// An alias: made, repointed and rolled back, with its history; the other settings on the way.
import assert from 'node:assert/strict'

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  await owner.enter(facts.link)
  await owner.visit('aliases', 'Aliases', { as: 'aliases, none yet' })

  step('make an alias')
  await page.keyboard.press('n')
  const made = owner.dialog('New alias')
  await made.getByLabel('Name').fill('support')
  await made.getByLabel('Target', { exact: true }).fill('sim/chat')
  await owner.settled()
  await owner.check('a new alias')
  await owner.button('Make the alias', made).click()
  await owner.heading('support')
  await owner.told('support is in force')
  assert.equal(await target(owner), 'sim/chat')

  await owner.visit('aliases/support', 'support', { as: 'an alias without a canary' })
  step('repoint it')
  await owner.button('Repoint').click()
  const change = owner.dialog('Change support')
  await change.getByLabel('Target', { exact: true }).fill('sim/chat-large')
  await owner.button('Put in force', change).click()
  await change.waitFor({ state: 'detached' })
  assert.equal(await target(owner), 'sim/chat-large')

  step('roll it back by keyboard')
  await owner.settled()
  await page.locator('h1').click()
  await page.keyboard.press('r')
  const back = owner.dialog('Roll support back?')
  await owner.check('a question before a rollback')
  await owner.button('Roll back', back).click()
  await back.waitFor({ state: 'detached' })
  assert.equal(await target(owner), 'sim/chat')

  step('the history has all three')
  await page.getByRole('heading', { name: 'History' }).waitFor()
  const { body } = await owner.ask('GET', `/dashboard/v1/${owner.workspace}/aliases/support/history`)
  assert.equal(JSON.parse(body).data.length, 3)

  step('delete it by typing its name')
  await owner.button('Delete').click()
  const ask = owner.dialog('Delete support?')
  assert.ok(await owner.button('Delete', ask).isDisabled())
  await ask.getByLabel(/to confirm/).fill('support')
  await owner.button('Delete', ask).click()
  await owner.heading('Aliases')
  await page.getByText('No aliases yet').waitFor()
  await owner.verifyNow()
}

async function target(person) {
  const { body } = await person.ask('GET', `/dashboard/v1/${person.workspace}/aliases/support`)
  return JSON.parse(body).target_model
}
