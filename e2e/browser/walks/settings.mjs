// Settings: keys and their limits, the workspace's limits, notifications, evidence, the audit trail. Palette and keys.
import assert from 'node:assert/strict'

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  await owner.enter(facts.link)
  await shell(owner, step)
  await keys(owner, facts, step)
  await limits(owner, step)
  await notifications(owner, step)

  await owner.visit('settings?tab=evidence', 'Settings')
  step('ask for proofs, and take it back')
  const needed = owner.page.getByRole('switch', { name: /A repoint of an alias needs a proof/ })
  await needed.click()
  await owner.told('The policy is in force')
  await owner.page.getByRole('region', { name: 'Messages' }).hover() // a message stays while the pointer is on it
  assert.equal((await read(owner, 'evidence')).required, true)
  await undo(owner)
  await owner.until('the policy is as before', async () => (await read(owner, 'evidence')).required === false)

  for (const tab of ['logging', 'providers']) await owner.visit(`settings?tab=${tab}`, 'Settings')
  await trail(owner, step)
  await owner.verifyNow()
}

async function shell(owner, step) {
  const { page } = owner
  await owner.visit('', /./)
  step('the keys of a page')
  await page.keyboard.press('?')
  const help = owner.dialog('Keyboard')
  await help.getByText('Command palette').waitFor()
  await owner.check('the list of keys')
  await page.keyboard.press('Escape')
  await help.waitFor({ state: 'detached' })
  step('the palette leads to a page')
  await page.keyboard.press('Control+k')
  const palette = page.getByRole('dialog', { name: 'Command palette' })
  await palette.getByRole('option').first().waitFor()
  await owner.check('the palette')
  await page.keyboard.type('wallet')
  await palette.getByRole('option', { name: /^Wallet/ }).waitFor()
  await page.keyboard.press('Enter')
  await owner.heading('Wallet')
  step('two letters lead to another')
  await owner.settled()
  await page.locator('h1').click()
  const settings = page.getByRole('heading', { level: 1, name: 'Settings' })
  await owner.until('g and s lead to Settings', async () => { // the second key must follow soon: a busy machine may be late
    await page.keyboard.press('g')
    await page.keyboard.press('s')
    return settings.isVisible()
  })
}

async function keys(owner, facts, step) {
  const { page } = owner
  await owner.visit('settings?tab=keys', 'Settings')
  step('a key with a limit')
  await owner.button('New key').click()
  const mint = owner.dialog('New key')
  await mint.getByLabel('Name').fill('limited')
  await mint.getByText('Limits (an admin can change them later)').click()
  await mint.getByLabel(/^Requests in any 60 seconds/).first().fill('100')
  await owner.check('a new key with limits')
  await owner.button('Make the key', mint).click()
  const shown = owner.dialog('The key limited')
  const key = /sk_sovereign_[0-9a-z]{47}/.exec(await shown.innerText())[0]
  await owner.button('I have kept it', shown).click()
  await shown.waitFor({ state: 'detached' })
  assert.equal(await status(facts, key), 200)

  step('its drawer, and its end')
  await page.getByRole('grid', { name: 'API keys' }).getByText('limited').click()
  const drawer = owner.dialog('limited')
  await owner.settled()
  await owner.check('a key')
  await owner.button('Revoke', drawer).click()
  await owner.button('Revoke', owner.dialog('Revoke limited?')).click()
  await owner.told('The key is revoked')
  assert.equal(await status(facts, key), 401)
}

async function status(facts, key) {
  return (await fetch(`${facts.base}/v1/models`, { headers: { Authorization: `Bearer ${key}` } })).status
}

async function limits(owner, step) {
  const { page } = owner
  await owner.visit('settings?tab=limits', 'Settings')
  step('a limit of the workspace, and back')
  await page.getByLabel(/^Requests in any 60 seconds/).first().fill('5000')
  await owner.button('Save').first().click()
  await owner.told('The limits are in force')
  await undo(owner)
  await owner.until('the limit is gone', async () => !JSON.stringify(await read(owner, 'limits')).includes('5000'))
}

async function notifications(owner, step) {
  const { page } = owner
  await owner.visit('settings?tab=notifications', 'Settings')
  step('a webhook: its secret once, its kinds, its end')
  await owner.button('New channel').click()
  const dialog = page.getByRole('dialog').last()
  await dialog.getByLabel(/URL|Address/i).first().fill('https://hooks.example.test/sovereign')
  await owner.check('a new channel')
  await dialog.getByRole('button', { name: 'Make it' }).click()
  const secret = owner.dialog('The webhook’s secret')
  assert.match(await secret.innerText(), /whsec_/)
  await owner.button('I have kept it', secret).click()
  await secret.waitFor({ state: 'detached' })
  await owner.button('Open').click()
  const channel = owner.dialog('https://hooks.example.test/sovereign')
  await owner.settled()
  await owner.check('a channel')
  await channel.getByRole('switch', { name: 'On' }).click()
  await owner.told('The channel is off')
  await owner.button('Delete', channel).click()
  await owner.button('Delete', owner.dialog('Delete the channel?')).click()
  await page.getByText(/None: notices are listed below/).waitFor()
  step('a wallet is low below another amount')
  await page.getByLabel('Low is below, $').fill('3')
  await owner.button('Save').click()
  await owner.told('Saved')
}

async function trail(owner, step) {
  const { page } = owner
  await owner.visit('settings?tab=audit', 'Settings')
  step('the audit trail, by action')
  await page.getByLabel('Action').fill('key.')
  await page.getByLabel('Action').press('Enter')
  await page.waitForURL(/action=key/)
  await owner.settled()
  const rows = page.getByRole('grid', { name: 'Audit trail' }).getByRole('row')
  await rows.nth(1).waitFor()
  for (const line of (await rows.allInnerTexts()).slice(1)) assert.match(line, /key\./)
  await rows.nth(1).click()
  await page.getByRole('dialog').getByText('Subject').first().waitFor()
  await owner.check('an entry of the trail')
}

/** Takes back what was just done, by the message that told of it. */
const undo = (owner) => owner.button('Undo', owner.page.getByRole('region', { name: 'Messages' })).last().click()

async function read(owner, what) {
  return JSON.parse((await owner.ask('GET', `/dashboard/api/w/${owner.workspace}/${what}`)).body)
}
