// Measures the Logs page in a real browser, with the facts as JSON on standard input. The last line of its output is JSON:
// milliseconds of each measurement.
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { flags } from './flags.mjs'

const require = createRequire(process.env.PACKAGES + '/package.json')
const { chromium } = require('playwright-core')
const facts = JSON.parse(readFileSync(0, 'utf8'))

/**
 * Runs in the page: resolves when a list with other rows than those of before is drawn. Its time counts from the start of
 * the navigation, or from a time that is given.
 */
const watch = () => {
  window.firstRow = () => {
    const row = document.querySelector('[role=grid] [role=row][aria-rowindex="2"]')
    return row && !row.querySelector('.skeleton') && !row.closest('.opacity-60') ? row.innerText : ''
  }
  window.drawn = (before = '', from = 0) => new Promise((done) => {
    const look = () => {
      const text = window.firstRow()
      if (!text || text === before) return requestAnimationFrame(look)
      const channel = new MessageChannel() // a message after a frame comes when it is drawn
      channel.port1.onmessage = () => done(performance.now() - from)
      requestAnimationFrame(() => channel.port2.postMessage(0))
    }
    look()
  })
  window.shown = window.drawn()
}

const step = (what) => console.log(`- ${what}`)
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: flags, timeout: 180_000 })
const viewport = { width: 1440, height: 900 }
const first = await browser.newContext({ viewport })
step('sign in')
const entry = await first.newPage()
await entry.goto(facts.link)
await entry.waitForURL(/\/dashboard\/w\/ws_/, { timeout: 120_000 })
const logs = `${facts.base}/dashboard/w/${new URL(entry.url()).pathname.split('/')[3]}/logs`
const storageState = await first.storageState()
await first.close()

const open = async () => {
  const context = await browser.newContext({ viewport, storageState })
  context.setDefaultTimeout(120_000)
  await context.addInitScript(watch)
  return context
}

const got = { cold: [], warm: [], paint: [], warmCPU: [], switched: [], filtered: [], wheel: {}, dragged: {} }
step('cold')
for (let i = 0; i < 3; i++) {
  const context = await open()
  const page = await context.newPage()
  await page.goto(logs, { waitUntil: 'commit' })
  got.cold.push(await page.evaluate(() => window.shown))
  await context.close()
}

step('warm')
const context = await open()
const page = await context.newPage()
const inspector = await context.newCDPSession(page)
await inspector.send('Performance.enable', { timeDomain: 'threadTicks' })
/** What the page's main thread has worked, in milliseconds of CPU time: other work on the machine disturbs it less. */
const worked = async () => {
  const { metrics } = await inspector.send('Performance.getMetrics')
  return 1000 * metrics.find((one) => one.name === 'TaskDuration').value
}
for (let i = 0; i <= facts.times; i++) {
  await page.goto(logs, { waitUntil: 'commit' })
  const took = await page.evaluate(() => window.shown)
  if (i > 0) {
    got.warm.push(took)
    got.paint.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime))
    got.warmCPU.push(await worked()) // a navigation begins anew
  }
  await page.waitForLoadState('networkidle')
}

step('from another page')
for (let i = 0; i < facts.times; i++) {
  await page.getByRole('link', { name: 'Home', exact: true }).click()
  await page.waitForFunction(() => !document.querySelector('[role=grid]'))
  await page.waitForLoadState('networkidle')
  got.switched.push(await page.evaluate(() => {
    const from = performance.now()
    document.querySelector('nav a[href$="/logs"]').click()
    return window.drawn('', from)
  }))
}

step('filter')
const tag = page.getByLabel('Tag', { exact: true })
await tag.focus()
await tag.locator('option[value="task-0"]').waitFor({ state: 'attached' })
await tag.selectOption(`task-${facts.times}`) // the rows of two tags differ, and those of a tag and of none may not
for (let i = 0; i < facts.times; i++) {
  await page.waitForLoadState('networkidle')
  got.filtered.push(await tag.evaluate((select, value) => {
    const before = window.firstRow(), from = performance.now()
    Object.getOwnPropertyDescriptor(HTMLSelectElement.prototype, 'value').set.call(select, value)
    select.dispatchEvent(new Event('change', { bubbles: true }))
    return window.drawn(before, from)
  }, `task-${i}`))
}

/** Scrolls through rows of 32 pixels: the times between frames, and the CPU time of one. */
const scroll = async (rows, each) => {
  await page.goto(logs)
  await page.evaluate(() => window.shown)
  await page.waitForLoadState('networkidle')
  const atRest = await worked()
  const times = await page.evaluate(([rows, each]) => new Promise((done) => {
    const grid = document.querySelector('[role=grid]'), deltas = []
    let last = 0, top = 0 // which is not read back: that would lay the page out once more
    const step = (now) => {
      if (last) deltas.push(now - last)
      last = now
      grid.scrollTop = top += 32 * each
      if (top >= 32 * rows) done(deltas)
      else requestAnimationFrame(step)
    }
    requestAnimationFrame(step)
  }), [rows, each])
  return { times, cpu: (await worked() - atRest) / times.length }
}
step('scroll')
got.wheel = await scroll(1_000, 3)
got.dragged = await scroll(5_000, 10)
await browser.close()
console.log(JSON.stringify(got))
