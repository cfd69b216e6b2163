// Money: a payment at another page with signed events, the ledger with its proof, usage, a statement.
import assert from 'node:assert/strict'

export default async function ({ facts, open, step }) {
  const owner = await open('owner')
  const { page } = owner
  owner.known.push(new URL(facts.stripe).host)
  await owner.enter(facts.link)
  await owner.visit('wallet', 'Wallet')
  const before = await free(owner)

  step('top up: an amount, and the payment page')
  await owner.button('Top up').click()
  const dialog = owner.dialog('Top up the wallet')
  await dialog.getByLabel('Amount, $').fill('25.5')
  await owner.check('a top-up')
  await owner.button('Pay $25.50', dialog).click()
  await page.waitForURL(/\/pay\/cs_test_/)
  await page.getByRole('heading', { name: 'Pay 2550 cents' }).waitFor()
  assert.equal(await freeOf(facts, owner), before, 'a page that was opened pays nothing')

  step('pay there: a forged event is refused, the signed one credits once')
  await owner.button('Pay').click()
  await page.waitForURL(/wallet\?topup=topup_/)
  await page.getByText('The payment page is closed.').waitFor()
  await owner.settled()
  await owner.check('back from the payment page')
  assert.equal((await free(owner)).toFixed(2), (before + 25.5).toFixed(2))

  await owner.visit('wallet?tab=topups', 'Wallet')
  const payments = page.getByRole('grid', { name: 'Card payments' })
  await payments.getByText('$25.50').waitFor()
  assert.match(await payments.innerText(), /paid|credited/i)

  step('the ledger: a transfer, its lines, its kind, its proof')
  await owner.visit('wallet?tab=ledger', 'Wallet')
  const ledger = page.getByRole('grid', { name: 'Ledger' })
  await ledger.getByRole('row').nth(1).click()
  const transfer = page.getByRole('dialog')
  await transfer.getByText('Lines, which sum to zero').waitFor()
  await owner.check('a transfer')
  await page.keyboard.press('Escape')
  await transfer.waitFor({ state: 'detached' })
  await owner.button('Prove it').click()
  const proof = owner.dialog('The ledger’s proof')
  await proof.getByText('Every balance is the sum of its entries').waitFor()
  await owner.check('the proof of the ledger')
  await page.keyboard.press('Escape')
  await proof.waitFor({ state: 'detached' })

  step('usage, a statement')
  await owner.visit('wallet?tab=usage', 'Wallet')
  await owner.visit('wallet?tab=statements', 'Wallet')
  const month = new Date().toISOString().slice(0, 7)
  await owner.visit(`wallet/statements/${month}`, /./)
  await page.getByText('25.50 USD').first().waitFor()
  await owner.verifyNow()
}

async function free(owner) {
  const { body } = await owner.ask('GET', `/dashboard/api/w/${owner.workspace}/wallet`)
  return JSON.parse(body).free_usd
}

/** The same, while the browser is at another site. */
async function freeOf(facts, owner) {
  const cookies = (await owner.page.context().cookies()).map(({ name, value }) => `${name}=${value}`).join('; ')
  const answer = await fetch(`${facts.base}/dashboard/api/w/${owner.workspace}/wallet`, { headers: { Cookie: cookies } })
  return (await answer.json()).free_usd
}
