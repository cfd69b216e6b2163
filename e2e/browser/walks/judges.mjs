// A judge's life: calibrated with its price before, its certificate verified, a ruling that voids it, a second calibration.
import assert from 'node:assert/strict'

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  await owner.enter(facts.link)
  await owner.visit('judges', 'Judges')
  await owner.visit(`judges/${facts.judge}`, 'Right')
  await calibrate(owner, facts.judge, 1, step)

  await owner.visit(`judges/${facts.judge}/certificate`, 'Certificate of Right')
  step('verify the signature in the browser, by keyboard')
  await page.keyboard.press('v')
  await page.getByText(/^Valid: every number shown/).waitFor()
  await owner.check('a verified certificate')
  const first = await certificate(owner, facts.judge)
  assert.equal(first.voided, false)

  await owner.visit(`judges/${facts.judge}/adjudication`, 'Adjudication')
  step('rule on the disagreements by keyboard; a wrong label that measured voids the certificate')
  await page.locator('h1').click()
  for (let left = await remaining(page); left > 0; left--) {
    await page.getByText(`${left} disagreement${left === 1 ? '' : 's'} left, the surest first`).waitFor()
    const isPlanted = (await page.locator('main').innerText()).includes('mislabelled')
    await page.keyboard.press(isPlanted ? 'l' : 'g')
    await page.getByText(`${left - 1} disagreement${left === 2 ? '' : 's'} left`).first().waitFor()
  }
  await owner.settled()
  await owner.check('everything is ruled on')
  await owner.until('the certificate is void', async () => (await certificate(owner, facts.judge)).voided)
  await owner.visit(`judges/${facts.judge}/certificate`, 'Certificate of Right', { as: 'a void certificate' })
  await page.getByRole('alert').getByText('Void', { exact: true }).waitFor()

  step('calibrate again: another certificate')
  await owner.go(`judges/${facts.judge}?tab=calibrations`, 'Right')
  await calibrate(owner, facts.judge, 2, step)
  const second = await certificate(owner, facts.judge)
  assert.equal(second.voided, false)
  assert.notEqual(second.id, first.id)
  step('the old one is still void, by its own address')
  await owner.go(`judges/${facts.judge}/certificate?id=${first.id}`, 'Certificate of Right')
  await page.getByRole('alert').getByText('Void', { exact: true }).waitFor()
  for (const tab of ['labels', 'scans', 'monitoring', 'drafts', 'versions']) {
    await owner.go(`judges/${facts.judge}?tab=${tab}`, 'Right')
  }
  await owner.verifyNow()
}

async function calibrate(owner, judge, nth, step) {
  const { page } = owner
  step('calibrate, with the price before')
  await owner.button('Calibrate…').click()
  const start = owner.dialog('Calibrate Right')
  await start.getByText(/\$/).first().waitFor()
  await owner.settled()
  await owner.check('a calibration before it starts')
  await owner.button('Calibrate', start).click()
  await owner.told('Calibration started')
  await owner.until('the calibration is done', async () => {
    const { body } = await owner.ask('GET', `/dashboard/v1/${owner.workspace}/criteria/${judge}/calibrations`)
    return JSON.parse(body).data.filter((run) => run.status === 'DONE').length === nth
  })
  await page.reload()
  await page.locator('h1').waitFor()
}

const remaining = async (page) => {
  const line = page.getByText(/\d+ disagreements? left, the surest first/)
  await line.waitFor()
  return Number(/\d+/.exec(await line.innerText())[0])
}

async function certificate(person, judge) {
  const { body } = await person.ask('GET', `/dashboard/v1/${person.workspace}/criteria/${judge}/certificate`)
  return JSON.parse(body)
}
