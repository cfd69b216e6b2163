// A newcomer: makes a demo by its button, sees every page alive, at a desk and on a phone, proves a certificate to a
// colleague by the command that the page shows, and deletes the demo by one click.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import phone from './phone.mjs'

const pages = [
  ['', 'Home', /Calibration of Answers the question/], ['logs', 'Logs', /exchanges/], ['traces', 'Traces', /zephyrine-refund-12/],
  ['review', 'Review', /Answers to customers/], ['judges', 'Judges', /calibrated/], ['datasets', 'Datasets', /support-eval/],
  ['evals', 'Evals', /Large in place of chat/], ['aliases', 'Aliases', /assistant/], ['aliases/assistant', 'assistant', /Evidence for and against/],
  ['rewards', 'Rewards', /Zephyrine's policy/], ['wallet?tab=topups', 'Wallet', /None yet/], ['wallet?by=tag', 'Wallet', /support/], ['wallet?by=key', 'Wallet', /demo/], ['settings?tab=audit', 'Settings', /demo\.create/],
]

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  await owner.enter(facts.link)
  const before = owner.workspace
  await owner.visit('', 'Home', { as: 'Home of a newcomer' })

  step('make a demo')
  await owner.button('Make a demo').click()
  await page.waitForURL((url) => /\/w\/ws_/.test(url.pathname) && !url.pathname.includes(before))
  await owner.arrived()
  const note = page.getByRole('note', { name: 'Demo' })
  await note.getByText(/Simulated traffic/).waitFor()
  await owner.check('a demo that is being filled')
  await owner.until('the demo is filled', async () => {
    const { status, skipped } = JSON.parse((await owner.ask('GET', `/dashboard/api/w/${owner.workspace}/demo`)).body)
    assert.notEqual(status, 'FAILED')
    assert.deepEqual(skipped, [])
    return status === 'DONE'
  })

  for (const [path, heading, has] of pages) {
    await owner.visit(path, heading)
    await page.locator('main').getByText(has).first().waitFor()
  }

  if (facts.phone) await phone({ owner, open, step })

  step('a job leads to what it works for')
  await owner.go('', 'Home')
  await page.getByRole('link', { name: 'Eval Large in place of chat' }).click()
  await owner.heading('Large in place of chat')

  step('prove a certificate to a colleague')
  await owner.go('judges', 'Judges')
  await page.getByText('Answers the question', { exact: true }).click()
  await owner.heading('Answers the question')
  await page.getByRole('link', { name: 'Certificate' }).first().click()
  await owner.heading(/Certificate of/)
  await owner.settled()
  const folder = mkdtempSync(join(tmpdir(), 'colleague-'))
  for (const [role, name] of [['button', 'Certificate'], ['link', 'Public keys']]) {
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole(role, { name, exact: true }).last().click()])
    await file.saveAs(join(folder, file.suggestedFilename()))
  }
  const command = await page.locator('pre', { hasText: 'sovereign verify' }).first().innerText()
  const said = execFileSync('sh', ['-c', `${command.replace(/^sovereign /, '"$PROGRAM" ')} 2>&1`], { cwd: folder, env: { ...process.env, PROGRAM: facts.program } })
  assert.match(String(said), /: valid, signed by /)

  step('delete the demo by one click')
  await owner.button('Delete the demo', note).click()
  await owner.button('Delete the demo', page.getByRole('alertdialog').or(page.getByRole('dialog'))).click()
  await owner.told('The demo is deleted')
  await page.waitForURL((url) => url.pathname.includes(before))
  const { workspaces } = JSON.parse((await owner.ask('GET', '/dashboard/api/session')).body)
  assert.deepEqual(workspaces.map((one) => one.id), [before])
  await owner.verifyNow()
}
