// Walks through the dashboard in one real browser. Each line of standard input is a walk as JSON: its script, what the
// script has to know, and the folder for pictures of a failure. What a walk says ends with "walk: ok" or "walk: failed".
// PACKAGES is where the packages are installed, CHROMIUM is the browser.
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { flags } from './flags.mjs'
import { Person } from './person.mjs'

const require = createRequire(process.env.PACKAGES + '/package.json')
const { chromium } = require('playwright-core')
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')

const looked = new Set() // where axe has looked, in all walks
let browser
const launched = async () => {
  if (!browser?.isConnected()) {
    browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: flags, timeout: 300_000 })
  }
  return browser
}

async function walk({ script, facts, folder }) {
  let at = 'the start'
  const step = (what) => {
    at = what
    console.log(`- ${what}`)
  }
  const people = []
  const open = async (who, options) => {
    const person = await Person.open(await launched(), { who, axe: facts.axe && axe, looked, base: facts.base, step, ...options })
    people.push(person)
    return person
  }
  try {
    const { default: run } = await import(`./walks/${script}.mjs`)
    await run({ facts, open, step })
    for (const person of people) person.verify()
    return true
  } catch (error) {
    console.log(`FAILED at: ${at}\n${error?.stack ?? error}`)
    for (const person of people) await person.picture(folder).catch((e) => console.log(`no picture: ${e}`))
    return false
  } finally {
    for (const person of people) await person.leave().catch(() => undefined)
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(`walk: ${await walk(JSON.parse(line)) ? 'ok' : 'failed'}`)
}
await browser?.close()
