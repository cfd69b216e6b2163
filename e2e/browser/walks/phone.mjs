// A part of the walk through a demo: every page at 375 pixels. Nothing is wider than the screen, and the page's main
// action can be reached.
import assert from 'node:assert/strict'

export default async function ({ owner: atDesk, open, step }) {
  const owner = await open('owner on a phone', { narrow: true, state: await atDesk.page.context().storageState() })
  const { page } = owner
  owner.workspace = atDesk.workspace
  await owner.visit('', 'Home')
  const first = async (path) => JSON.parse((await owner.ask('GET', `/dashboard/v1/${owner.workspace}/${path}`)).body).data[0]
  const judge = (await first('criteria')).id
  const alias = (await first('aliases')).name
  const pages = [
    ['logs', 'Logs', 'Follow'],
    ['traces', 'Traces'], [`traces/${encodeURIComponent((await first('traces')).id)}`, 'Run', /^Pass/],
    ['review', 'Review', 'New queue'],
    ['judges', 'Judges', 'New judge'], [`judges/${judge}`, /./, 'Calibrate…'], [`judges/${judge}?tab=labels`, /./],
    [`judges/${judge}/certificate`, /./], [`judges/${judge}/adjudication`, 'Adjudication'],
    ['datasets', 'Datasets', 'Freeze from logs'], [`datasets/${(await first('datasets')).id}`, /./, 'Delete…'],
    ['evals', 'Evals', 'New eval'], [`evals/${(await first('evals')).id}`, /./],
    ['aliases', 'Aliases', 'New alias'], [`aliases/${alias}`, alias, 'Repoint'],
    ['rewards', 'Rewards', 'New session'], [`rewards/${(await first('reward/sessions')).id}`, /./],
    ['wallet', 'Wallet', 'Top up'], ['wallet?tab=ledger', 'Wallet', 'Prove it'],
    [`wallet/statements/${new Date().toISOString().slice(0, 7)}`, /./],
    ['settings?tab=keys', 'Settings', 'New key'], ['settings?tab=team', 'Settings', 'Invite'],
    ...['logging', 'limits', 'providers', 'evidence', 'notifications', 'account', 'audit'].map((tab) => [`settings?tab=${tab}`, 'Settings']),
  ]
  await fits(owner, 'Home')
  for (const [path, heading, action] of pages) {
    await owner.go(path, heading)
    await fits(owner, path)
    if (!action) continue
    const button = owner.button(action).first()
    await button.scrollIntoViewIfNeeded()
    const box = await button.boundingBox()
    assert.ok(box && box.x >= 0 && box.x + box.width <= 376, `${path}: ${action} is at ${JSON.stringify(box)}`)
  }

  step('the menu leads to a page, by touch')
  await owner.button('Menu').tap()
  await page.getByRole('link', { name: 'Wallet' }).tap()
  await owner.heading('Wallet')
  await fits(owner, 'after the menu')
  step('a dialog fits')
  await owner.button('Top up').tap()
  await owner.dialog('Top up the wallet').waitFor()
  await fits(owner, 'a dialog')
  await owner.check('a dialog')
  await owner.verifyNow()
  await owner.leave()
}

/** The document does not scroll sideways. */
async function fits({ page, troubles }, where) {
  const wide = await page.evaluate(() => {
    const width = document.documentElement.clientWidth
    const over = document.scrollingElement.scrollWidth - width
    if (over <= 0) return ''
    const culprits = [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > width + 1)
    return `${over} pixels too wide: ${culprits.slice(-3).map((one) => one.outerHTML.slice(0, 160)).join(' | ')}`
  })
  if (wide) troubles.push(`${where}: ${wide}`)
}
