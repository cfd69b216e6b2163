// A reward session: begun with a held budget and an anchor, held by it, released with a note, exported, completed.
import assert from 'node:assert/strict'

const batch = 32

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  await owner.enter(facts.link)
  await owner.visit('rewards', 'Rewards', { as: 'rewards, none yet' })

  step('begin a session')
  await page.keyboard.press('n')
  const form = owner.dialog('New reward session')
  await form.getByLabel('Label').fill('run 7')
  await form.getByLabel('Budget, $').fill('5')
  await form.getByRole('radio', { name: /^Pleased/ }).check()
  const anchor = form.getByLabel('Anchor', { exact: true })
  await anchor.selectOption({ index: 1 })
  await form.getByLabel('A check after this many scored').fill(String(batch))
  await form.getByLabel('Completions of a check').fill(String(batch))
  await owner.settled()
  await owner.check('a new session')
  await owner.button('Hold the budget and begin', form).click()
  await owner.told('The session scores now')
  await owner.heading('run 7')
  const id = new URL(page.url()).pathname.split('/').at(-1)
  const session = async () => JSON.parse((await owner.ask('GET', `/dashboard/v1/${owner.workspace}/reward/sessions/${id}`)).body)

  step('honest completions: the anchor agrees')
  await score(facts, id, '1', (i) => (i % 2 ? '[truth=pass] [sim quality=0.90]' : '[truth=fail] [sim quality=0.10]'))
  await owner.until('the first check is made', async () => (await session()).anchor.checks >= 1)
  assert.equal((await session()).anchor.held, false)

  step('completions that please the judge alone: the anchor holds')
  await owner.until('the session is held', async () => {
    await score(facts, id, '2', () => '[truth=pass] [sim quality=0.10]')
    return (await session()).anchor.held
  })
  await owner.visit(`rewards/${id}`, 'run 7')
  await page.getByRole('alert').getByText(/The anchor holds this session/).waitFor()

  step('a token for a trainer: shown once, revoked')
  await page.getByRole('heading', { name: 'In your trainer' }).scrollIntoViewIfNeeded() // what is above is read when it is seen
  await owner.button('New token').click()
  const naming = owner.dialog('New token')
  await naming.getByLabel('What it is for').fill('trainer')
  await owner.button('Make it', naming).click()
  const token = owner.dialog('The token trainer')
  await token.waitFor()
  await owner.check('a new token')
  await owner.button('I have kept it', token).click()
  await owner.button('Revoke').click()
  await owner.button('Revoke', owner.dialog('Revoke trainer?')).click()
  await owner.told('The token is revoked')

  step('release it, with a note')
  await owner.button('Release').click()
  const release = owner.dialog('Let it score again?')
  await release.getByLabel('Why').fill('The run was mended.')
  await owner.check('a release')
  await owner.button('Release', release).click()
  await owner.told('The session scores again')
  assert.equal((await session()).anchor.held, false)

  step('export: rewards, and what passed')
  const lines = async (format) => {
    const { body } = await owner.ask('GET', `/dashboard/v1/${owner.workspace}/reward/sessions/${id}/export?format=${format}`)
    return body.trim().split('\n').length
  }
  assert.equal(await lines('rl'), (await session()).scored)
  assert.ok(await lines('sft') >= batch / 2)

  step('complete it: what is left comes back')
  await owner.button('Complete').click()
  await owner.button('Complete it', owner.dialog('Is the run done?')).click()
  await owner.told('The session is completed')
  assert.equal((await session()).status, 'COMPLETED')
  const wallet = JSON.parse((await owner.ask('GET', `/dashboard/api/w/${owner.workspace}/wallet`)).body)
  assert.deepEqual(wallet.holds, [])
  await owner.go('rewards?status=COMPLETED', 'Rewards')
  await owner.verifyNow()
}

let made = 0

/** Scores completions as a trainer does. One that is held meanwhile is refused. */
async function score(facts, id, name, marker) {
  const items = Array.from({ length: batch }, (_, i) => ({
    id: String(i), prompt: `Question ${++made}`, completion: `Answer ${made} ${marker(i)}`,
  }))
  const answer = await fetch(`${facts.base}/v1/reward/sessions/${id}/score`, {
    method: 'POST', headers: { Authorization: `Bearer ${facts.key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ step: name, items }),
  })
  assert.ok([200, 412].includes(answer.status), `${answer.status} ${await answer.text()}`)
}
