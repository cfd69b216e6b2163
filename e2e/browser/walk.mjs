// Runs one walk through the dashboard in a real browser: node walk.mjs NAME, with the facts as JSON on standard input.
// PACKAGES is where the packages are installed, CHROMIUM the browser, FOLDER where pictures of failures go.
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { flags } from './flags.mjs'
import { Person } from './person.mjs'

const require = createRequire(process.env.PACKAGES + '/package.json')
const { chromium } = require('playwright-core')

const name = process.argv[2]
const facts = JSON.parse(readFileSync(0, 'utf8'))
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')
const { default: walk } = await import(`./walks/${name}.mjs`)

let at = 'the start'
const step = (what) => {
  at = what
  console.log(`- ${what}`)
}
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: flags, timeout: 180_000 })
const people = []
const open = async (who, options) => {
  const person = await Person.open(browser, { who, axe, base: facts.base, step, ...options })
  people.push(person)
  return person
}
let failed = false
try {
  await walk({ facts, open, step })
  for (const person of people) person.verify()
} catch (error) {
  failed = true
  console.log(`FAILED at: ${at}\n${error?.stack ?? error}`)
  for (const person of people) await person.picture(process.env.FOLDER).catch((e) => console.log(`no picture: ${e}`))
}
await browser.close()
process.exit(failed ? 1 : 0)
