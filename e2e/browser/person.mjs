// A person in a browser of their own. Every page that they visit is checked: axe; nothing that the content security policy
// stops; no error in the console; at most three calls of the API for its first view.
import assert from 'node:assert/strict'

const patience = Number(process.env.PATIENCE ?? 120_000) // milliseconds: no promise, a walk that waits that long hangs
const session = '/dashboard/api/session' // read once, whatever pages follow

/** Errors that a walk provokes, and that the browser reports in its console by itself. */
const refusals = /Failed to load resource: the server responded with a status of 4\d\d/

/** Some frames were drawn: what an answer starts has been started. */
const drawn = async () => {
  for (let n = 0; n < 6; n++) await new Promise((done) => requestAnimationFrame(done))
}

/** The colours have changed: a few frames were drawn without a transition. One may start another, of what inherits. */
const painted = async () => {
  for (let quiet = 0; quiet < 4; quiet++) {
    await new Promise((drawn) => requestAnimationFrame(drawn))
    if (document.getAnimations().some((one) => one instanceof CSSTransition)) quiet = 0
  }
}

export class Person {
  /** axe is its script, if it is to look at anything; looked has the places where it has; state is another's, to be the same person. */
  static async open(browser, { who, axe, looked, base, step, narrow, state }) {
    const context = await browser.newContext({
      viewport: narrow ? { width: 375, height: 812 } : { width: 1440, height: 900 }, colorScheme: 'light', storageState: state,
      reducedMotion: 'reduce', timezoneId: 'Europe/Berlin', locale: 'en-GB', hasTouch: Boolean(narrow),
    })
    context.setDefaultTimeout(patience)
    context.setDefaultNavigationTimeout(patience)
    await context.addInitScript(() => {
      window.stopped = []
      document.addEventListener('securitypolicyviolation', (event) => window.stopped.push(
        `${event.violatedDirective} stopped ${event.blockedURI} ${event.sourceFile}:${event.lineNumber} ${event.sample}`))
    })
    return new Person(await context.newPage(), { who, axe, looked, base, step, narrow })
  }

  constructor(page, { who, axe, looked, base, step, narrow }) {
    Object.assign(this, { page, who, axe, looked, base, step, narrow, troubles: [], calls: [], known: [], workspace: '', running: new Set(), began: 0 })
    page.on('requestfinished', (request) => this.running.delete(request))
    page.on('requestfailed', (request) => this.running.delete(request))
    page.on('framenavigated', (frame) => frame === page.mainFrame() && this.running.clear())
    page.on('console', (said) => {
      if (said.type() === 'error' && !refusals.test(said.text())) this.troubles.push(`console: ${said.text()}`)
    })
    page.on('pageerror', (error) => this.troubles.push(`error of the page: ${error.stack ?? error}`))
    page.on('dialog', (dialog) => {
      this.troubles.push(`a script opened a dialog: ${dialog.message()}`)
      void dialog.dismiss()
    })
    page.on('request', (request) => {
      const { pathname, host, search } = new URL(request.url())
      if (![new URL(base).host, ...this.known].includes(host) && !/^(data|blob):/.test(request.url())) this.troubles.push(`a call to ${request.url()}`)
      if (request.resourceType() !== 'eventsource') {
        this.running.add(request)
        this.began++
      }
      const call = `${request.method()} ${pathname}${search}`
      if (/^\/dashboard\/(api|v1)\//.test(pathname) && pathname !== session && !this.calls.includes(call)) this.calls.push(call)
    })
  }

  /** Opens a one-time link, and stands in the workspace afterwards. */
  async enter(link) {
    this.step(`${this.who} opens a one-time link`)
    await this.page.goto(link)
    await this.arrived()
  }

  /** The page of a workspace stands: its id is known. */
  async arrived() {
    await this.page.waitForURL(/\/dashboard\/w\/ws_/)
    this.workspace = new URL(this.page.url()).pathname.split('/')[3]
    await this.settled()
  }

  /**
   * Opens a page of the workspace anew, and checks it. What it asks for again, as pages do that follow a job, counts once.
   * Without anything to show it is another place for axe, with a name of its own.
   */
  async visit(path, heading, { as = path || 'Home' } = {}) {
    this.step(`${this.who} visits ${as}`)
    await this.drain()
    this.calls = []
    await this.page.goto(this.address(path))
    await this.heading(heading)
    await this.settled()
    if (this.calls.length > 3) this.troubles.push(`${path}: ${this.calls.length} calls for the first view: ${this.calls.join(', ')}`)
    await this.check(as)
  }

  /** Goes to another page without loading the document anew, as a link does: that is a third of the work. */
  async go(path, heading) {
    this.step(`${this.who} goes to ${path || 'Home'}`)
    await this.page.evaluate((to) => {
      const router = window.__TSR_ROUTER__ // which is where its library puts it
      window.arrived = false
      const stop = router.subscribe('onRendered', () => {
        stop()
        window.arrived = true
      })
      router.history.push(to)
    }, this.address(path).slice(this.base.length))
    await this.page.waitForFunction(() => window.arrived)
    await this.heading(heading)
    await this.settled()
    await this.check(path || 'Home')
  }

  address(path) { return `${this.base}/dashboard/w/${this.workspace}/${path}` }

  /** The page has its data: nothing is on the way, no skeleton is left, and a few frames later that is still so. */
  async settled() {
    await this.until('the page has its data', async () => {
      await this.page.waitForFunction(() => document.readyState === 'complete' && !document.querySelector('[aria-busy=true], .skeleton'))
      const before = this.began
      await this.page.evaluate(drawn)
      return this.running.size === 0 && this.began === before
    })
  }

  /** Waits until something holds that no event tells of. */
  async until(what, holds) {
    for (const end = Date.now() + patience; !(await holds());) {
      assert.ok(Date.now() < end, `not within ${patience / 1000} s: ${what}`)
      await new Promise((later) => setTimeout(later, 50))
    }
  }

  heading(name) {
    return this.page.getByRole('heading', { level: 1, name }).waitFor()
  }

  /**
   * Axe finds nothing. It looks at a place once in a run: with all its rules in light, and at the contrast in dark too,
   * where only colours differ. A phone has the same colours. Behind an open dialog everything is inert: the dialog is
   * looked at.
   */
  async check(where) {
    const place = `${where.replaceAll(/_[0-9a-z]{26}/g, '')}${this.narrow ? ', on a phone' : ''}`
    if (!this.axe || this.looked.has(place)) return
    this.looked.add(place)
    if (!await this.page.evaluate(() => 'axe' in window)) await this.page.evaluate(this.axe)
    if (this.narrow) return this.look(place, { rules: { 'color-contrast': { enabled: false } } })
    await this.page.emulateMedia({ colorScheme: 'dark', reducedMotion: 'reduce' })
    await this.page.evaluate(painted)
    await this.look(`${place}, in dark`, { runOnly: ['color-contrast'] })
    await this.page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' })
    await this.page.evaluate(painted)
    await this.look(place, {})
  }

  async look(place, options) {
    const { violations } = await this.page.evaluate((rules) => window.axe.run(
      [...document.querySelectorAll('[role=dialog], [role=alertdialog]')].at(-1) ?? document, { resultTypes: ['violations'], ...rules }), options)
    const told = violations.map((v) => `${v.id} (${v.impact}): ${v.help}\n` +
      v.nodes.slice(0, 5).map((node) => `    ${node.target.join(' ')}\n      ${node.failureSummary?.replaceAll('\n', ' ')}`).join('\n'))
    if (told.length) this.troubles.push(`axe, ${place}:\n  ${told.join('\n  ')}`)
  }

  async drain() {
    const stopped = await this.page.evaluate(() => window.stopped?.splice(0) ?? []).catch(() => [])
    this.troubles.push(...stopped.map((line) => `the policy: ${line}`))
  }

  button(name, within = this.page) { return within.getByRole('button', { name }) }

  dialog(name) { return this.page.getByRole('dialog', { name }) }

  /** A message of the page, such as that something was saved. */
  told(text) { return this.page.getByRole('region', { name: 'Messages' }).getByText(text).first().waitFor() }

  /** Calls the API as the page does: with its cookie, from its origin. */
  ask(method, path, body) {
    return this.page.evaluate(async ([how, where, sent]) => {
      const answer = await fetch(where, { method: how, headers: { 'Content-Type': 'application/json' }, body: sent && JSON.stringify(sent) })
      return { status: answer.status, body: await answer.text() }
    }, [method, path, body])
  }

  /** Fails on whatever went wrong in this browser. */
  async verifyNow() {
    await this.drain()
    this.verify()
  }

  verify() {
    assert.equal(this.troubles.length, 0, `${this.who}:\n${[...new Set(this.troubles)].join('\n')}`)
  }

  /** Closes the browser of this person. */
  leave() { return this.page.context().close() }

  async picture(folder) {
    await this.drain()
    console.log(`${this.who} is at ${this.page.url()}${this.troubles.length ? `\n${this.troubles.join('\n')}` : ''}`)
    const path = `${folder}/${this.who.replaceAll(/\W/g, '-')}.png`
    await this.page.screenshot({ path, timeout: 30_000 })
    console.log(`picture: ${path}`)
  }
}
