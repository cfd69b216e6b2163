// Grading by keyboard: a whole run, and a queue of twenty that two people work in two browsers, with one conflict.
import assert from 'node:assert/strict'

const items = 20

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  await owner.enter(facts.link)

  await owner.visit('traces', 'Traces')
  step('open the run and grade it by keyboard')
  await page.getByRole('grid', { name: 'Runs' }).getByText('run-1').waitFor()
  await page.keyboard.press('j')
  await page.keyboard.press('Enter')
  await owner.heading('Run')
  await owner.settled()
  await owner.check('a run')
  await page.keyboard.press('c')
  await page.keyboard.type('Reads the file before it answers.')
  await page.keyboard.press('Escape')
  await page.locator('h1').click() // out of the text
  await page.keyboard.press('1')
  await owner.told('Graded: pass')
  await page.getByText('“Reads the file before it answers.”').waitFor()
  const graded = JSON.parse((await owner.ask('GET', `/dashboard/v1/${owner.workspace}/labels?trace_id=run-1`)).body)
  assert.deepEqual(graded.data.map((label) => label.verdict), ['pass'])

  await owner.visit('review', 'Review')
  step('make a queue of twenty for two graders')
  await page.keyboard.press('n')
  const dialog = owner.dialog('New review queue')
  await dialog.getByLabel('Name').fill('Twenty')
  await dialog.getByLabel('For the judge').selectOption({ label: 'Right' })
  await dialog.getByLabel('At most').fill(String(items))
  await dialog.getByLabel('Tag').fill('graded')
  await dialog.getByLabel('Graders per item').selectOption('2')
  await owner.settled()
  await owner.check('a new queue')
  await owner.button('Make the queue', dialog).click()
  await owner.heading('Twenty')
  const queue = new URL(page.url()).pathname.split('/').at(-1)
  await owner.until('twenty items are in the queue', async () => {
    const { body } = await owner.ask('GET', `/dashboard/api/w/${owner.workspace}/queues/${queue}`)
    return JSON.parse(body).counts?.items === items
  })

  step('grant the queue to an expert')
  await owner.visit(`review/${queue}?view=people`, 'Twenty')
  await page.getByLabel('E-mail address').fill('expert@example.test')
  await owner.button('Invite by link').click()
  await page.getByText('It is shown once: send it now.').waitFor()
  const link = /https?:\/\/\S+#link=[\w-]{43}/.exec(await page.locator('main').innerText())?.[0]
  assert.ok(link, 'the link of the reviewer is shown')
  const expert = await open('expert')
  await expert.enter(link)
  step('the expert sees the queue, and nothing else')
  await expert.heading('Twenty')
  await expert.settled()
  await expert.check('the queue of an expert')
  assert.deepEqual(await expert.page.getByRole('navigation', { name: 'Pages' }).getByRole('listitem').allInnerTexts(), ['Review'])
  for (const path of ['logs', 'criteria', 'traces']) {
    const { status } = await expert.ask('GET', `/dashboard/v1/${owner.workspace}/${path}`)
    assert.ok(status === 403 || status === 404, `${path}: ${status}`)
  }

  await owner.visit(`review/${queue}`, 'Twenty')
  step('both grade twenty by keyboard; they differ once')
  await Promise.all([work(owner, false), work(expert, true)])

  step('the conflict and the agreement are shown')
  await owner.visit(`review/${queue}?view=progress`, 'Twenty')
  await page.getByText('95.0 %').first().waitFor()
  await page.getByText(/Krippendorff/).first().waitFor()
  const { body } = await owner.ask('GET', `/dashboard/api/w/${owner.workspace}/queues/${queue}/agreement`)
  const agreement = JSON.parse(body)
  assert.equal(agreement.pairs, items)
  assert.equal(agreement.percent, 95)
  assert.ok(agreement.alpha_ci[0] <= agreement.alpha && agreement.alpha <= agreement.alpha_ci[1])
  await owner.visit(`review/${queue}?view=items&conflict=true`, 'Twenty')
  await page.getByText(/1 item|conflict/i).first().waitFor()

  step('a grant that is taken away ends at once')
  await owner.go(`review/${queue}?view=people`, 'Twenty')
  await owner.button('Take away').click()
  await owner.button('Take away', owner.dialog('Take the grant away')).click()
  await owner.told('expert@example.test has no access any more')
  const { status } = await expert.ask('GET', `/dashboard/api/w/${owner.workspace}/queues/${queue}`)
  assert.ok([401, 403, 404].includes(status), String(status))
  await expert.verifyNow()
  await owner.verifyNow()
}

/** Grades until nothing is left. What states that it is right passes; the one who errs takes the odd one for right. */
async function work(person, errs) {
  const { page } = person
  const advance = page.getByLabel('Auto-advance')
  if (!(await advance.isChecked())) await advance.click()
  await page.locator('h1').click()
  const subject = page.getByRole('region', { name: 'What is graded' })
  for (let n = 0; n < items; n++) {
    const before = await subject.innerText()
    const right = before.includes('[truth=pass]') || (errs && before.includes('odd one'))
    await page.keyboard.press(right ? '1' : '0')
    if (n === 2 && errs) { // a second thought
      await changed(page, before)
      await page.keyboard.press('u')
      await page.waitForFunction((text) => document.querySelector('[aria-label="What is graded"]')?.innerText === text, before)
      await page.getByText('Your grade', { exact: true }).waitFor()
      await page.keyboard.press(right ? '1' : '0')
    }
    await changed(page, before)
  }
  await page.getByRole('heading', { name: /All graded|Nothing is left for you/ }).waitFor()
  await person.settled()
  await person.check('a queue that is done')
}

const changed = (page, before) =>
  page.waitForFunction((text) => document.querySelector('[aria-label="What is graded"]')?.innerText !== text, before)
