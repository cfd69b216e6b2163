// Photographs every page of the dashboard, in light and dark, at 1440 and 375 pixels, of a server that it starts with a
// demo, and lists them in docs/dashboard.md: node screenshots.mjs [FOLDER [NAME...]]. Pictures are WebP, encoded by the
// browser. With KEEP=FOLDER the whole pages are kept there too, as PNG, to look at. With LINK=URL it uses the server of
// that one-time link.
import { spawn, execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { pages } from './pages.mjs'
import { served, train } from './training.mjs'

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..')
const shown = join(root, 'docs/dashboard')
const [folder = shown, ...only] = process.argv.slice(2)
const patience = 300_000
const widths = { desktop: { width: 1440, height: 900 }, phone: { width: 375, height: 812 } }
const themes = ['light', 'dark']
const colours = 16 // two pixels to a byte

const flags = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage', '--no-proxy-server',
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
]

/** The driver of the browser, at the version that the walks use. */
function playwright() {
  const at = join(root, '.tools/screenshots')
  if (!existsSync(join(at, 'node_modules/playwright-core'))) {
    console.log('screenshots: installing what drives the browser into .tools/screenshots')
    mkdirSync(at, { recursive: true })
    for (const file of readdirSync(join(root, 'e2e/browser')).filter((f) => /^(package.*\.json|\.npmrc)$/.test(f))) cpSync(join(root, 'e2e/browser', file), join(at, file))
    execFileSync('npm', ['ci', '--ignore-scripts', '--loglevel', 'error'], { cwd: at, stdio: 'inherit' })
  }
  return createRequire(join(at, 'package.json'))('playwright-core').chromium
}

const chromium = () => ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome-stable']
  .map((name) => process.env.PATH.split(':').map((part) => join(part, name)).find(existsSync)).find(Boolean)

/** A server with a demo, in a folder that is gone afterwards. */
async function serve() {
  if (process.env.LINK) return { link: process.env.LINK, data: '', stop: () => {} }
  const data = mkdtempSync(join(tmpdir(), 'screenshots-'))
  const child = spawn(join(root, 'bin/sovereign'), [
    'serve', '--bootstrap', '--demo', '--listen', '127.0.0.1:0', '--operations-listen', 'off', '--data-dir', join(data, 'data'),
    ...served(root),
  ])
  const stop = () => {
    child.kill('SIGKILL')
    rmSync(data, { recursive: true, force: true })
  }
  process.on('exit', stop)
  let said = ''
  const link = await new Promise((found, failed) => {
    const read = (piece) => {
      said += piece
      const at = /address=(http:\S+)/.exec(said)?.[1]
      const token = /#link=[\w-]+/.exec(said)?.[0]
      if (at && token) found(`${at}/dashboard/${token}`)
    }
    child.stdout.on('data', read)
    child.stderr.on('data', read)
    child.on('exit', (code) => failed(new Error(`the server ended with ${code}:\n${said}`)))
  })
  return { link, data, stop }
}

/** The state of a signed-in person, and the workspace of the demo, once it is filled. */
async function enter(browser, { link, data }) {
  const context = await browser.newContext()
  const page = await context.newPage()
  const ask = (path) => page.evaluate(async (where) => (await fetch(where)).json(), path)
  await page.goto(link)
  await page.waitForURL(/\/dashboard\/w\/ws_/)
  const { workspaces } = await ask('/dashboard/api/session')
  const demo = workspaces.find((one) => one.demo).id
  for (const end = Date.now() + patience; ;) {
    const now = await ask(`/dashboard/api/w/${demo}/demo`)
    if (now.status === 'DONE') break
    if (now.status === 'FAILED' || Date.now() > end) throw new Error(`the demo is not filled: ${JSON.stringify(now)}`)
    await page.waitForTimeout(500)
  }
  const find = async (path, wanted = () => true) => {
    const [, mount, rest] = /^\/(v1|api)\/(.*)/.exec(path)
    const { data } = await ask(mount === 'v1' ? `/dashboard/v1/${demo}/${rest}` : `/dashboard/api/w/${demo}/${rest}`)
    const found = data.find(wanted)
    if (!found) throw new Error(`the demo has nothing of that kind in ${path}`)
    return found.id
  }
  const send = (method, path, body) => page.evaluate(async ([how, where, sent]) => (await fetch(where, {
    method: how, headers: { 'Content-Type': 'application/json' }, body: sent && JSON.stringify(sent),
  })).json(), [method, path, body])
  const trained = data && await train({
    root, data, base: new URL(link).origin, patience, ask: (method, path, body) => send(method, `/dashboard/v1/${demo}/${path}`, body),
    start: (path, body) => send('POST', `/dashboard/api/w/${demo}/${path}`, body),
  })
  const all = await pages(find, trained)
  return { demo, all, state: await context.storageState(), base: new URL(link).origin }
}

/** The page stands: nothing is on the way, no skeleton is left, nothing moves. */
async function settled(page) {
  await page.waitForLoadState('networkidle')
  await page.waitForFunction(() => !document.querySelector('[aria-busy=true], .skeleton'))
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))))
}

/** Encodes a PNG as WebP without loss, after mapping it to few colours: text stays sharp, and files small. */
async function webp(encoder, png) {
  const text = await encoder.evaluate(async ([data, most]) => {
    const picture = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob())
    const canvas = new OffscreenCanvas(picture.width, picture.height)
    const context = canvas.getContext('2d')
    context.drawImage(picture, 0, 0)
    const image = context.getImageData(0, 0, picture.width, picture.height)
    const pixels = new Uint32Array(image.data.buffer)
    const counts = new Map()
    for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1)
    // Each colour that is kept is the commonest of those that are far from the ones before: a thin line stays blue.
    const parts = (colour) => [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255]
    const far = ([r, g, b], [x, y, z]) => (r - x) ** 2 + (g - y) ** 2 + (b - z) ** 2
    const all = [...counts].map(([colour, count]) => ({ colour, count, rgb: parts(colour), gap: Infinity, kept: colour }))
    for (let n = 0; n < most; n++) {
      const next = all.reduce((best, one) => (Math.sqrt(one.count) * Math.min(one.gap, 1e5) > Math.sqrt(best.count) * Math.min(best.gap, 1e5) ? one : best))
      for (const one of all) {
        const gap = far(one.rgb, next.rgb)
        if (gap < one.gap) Object.assign(one, { gap, kept: next.colour })
      }
    }
    const near = new Map(all.map(({ colour, kept }) => [colour, kept]))
    for (let i = 0; i < pixels.length; i++) pixels[i] = near.get(pixels[i])
    context.putImageData(image, 0, 0)
    const blob = await canvas.convertToBlob({ type: 'image/webp', quality: 1 })
    const bytes = new Uint8Array(await blob.arrayBuffer())
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
  }, [png.toString('base64'), colours])
  return Buffer.from(text, 'base64')
}

/** Lists the pictures in docs/dashboard.md, below its heading "Pictures": folded, four for each page. */
function list(all) {
  const file = join(root, 'docs/dashboard.md')
  const [before, rest] = readFileSync(file, 'utf8').split(/(?<=\n## Pictures\n)/)
  const after = /\n## (?!Pictures)[^]*/.exec(rest ?? '')?.[0] ?? ''
  const of = (name, device, theme) => `<img src="dashboard/${name}-${device}-${theme}.webp" width="${device === 'phone' ? 160 : 480}" alt="${theme}, ${device}">`
  const cells = (name, device) => themes.map((theme) => of(name, device, theme)).join(' ')
  writeFileSync(file, `${before}
\`make screenshots\` makes them anew, of a demo.

${all.map(({ name, title }) => `<details><summary>${title}</summary>\n\n${cells(name, 'desktop')}\n${cells(name, 'phone')}\n\n</details>`).join('\n')}
${after}`)
}

const server = await serve()
const browser = await playwright().launch({ executablePath: chromium(), args: flags, timeout: 180_000 })
try {
  const { demo, all, state, base } = await enter(browser, server)
  const encoder = await browser.newPage()
  mkdirSync(folder, { recursive: true })
  if (process.env.KEEP) mkdirSync(process.env.KEEP, { recursive: true })
  let bytes = 0
  for (const [device, viewport] of Object.entries(widths)) for (const theme of themes) {
    const context = await browser.newContext({
      viewport, colorScheme: theme, reducedMotion: 'reduce', locale: 'en-GB', timezoneId: 'Europe/Berlin', storageState: state, hasTouch: device === 'phone',
    })
    const page = await context.newPage()
    for (const { name, path, keys = [] } of all.filter((one) => only.length === 0 || only.includes(one.name))) {
      await page.goto(`${base}/dashboard/w/${demo}/${path}`)
      await settled(page)
      for (const key of keys) await page.keyboard.press(key)
      await settled(page)
      const file = `${name}-${device}-${theme}`
      const picture = await webp(encoder, await page.screenshot())
      bytes += picture.length
      writeFileSync(join(folder, `${file}.webp`), picture)
      if (process.env.KEEP) await page.screenshot({ path: join(process.env.KEEP, `${file}.png`), fullPage: true })
    }
    await context.close()
  }
  if (folder === shown && server.data) list(all)
  console.log(`screenshots: ${all.length} pages in ${folder}, ${Math.round(bytes / 1024)} KB`)
} finally {
  await browser.close()
  server.stop()
}
