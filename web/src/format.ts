// How numbers and times are written. Money is exact: the API sends dollars with up to nine digits.

let zoneName = '' // making a format for every row of a list was a tenth of a frame
const zone = () => (zoneName ||= Intl.DateTimeFormat().resolvedOptions().timeZone)

/** A money amount: cents, and more digits where it is small. Amounts of a size have as many, so that a column lines up. */
export function money(usd: number): string {
  if (usd === 0) return '$0.00'
  const size = Math.abs(usd)
  const digits = size >= 0.0995 ? 2 : size >= 0.01 ? 4 : size >= 0.000001 ? 6 : 9
  return (usd < 0 ? '−$' : '$') + group(size.toFixed(digits))
}

/** All nine digits of an amount. */
export function exactMoney(usd: number): string {
  const fixed = Math.abs(usd).toFixed(9).replace(/0{1,7}$/, '')
  return (usd < 0 ? '−' : '') + group(fixed) + ' USD'
}

function group(fixed: string): string {
  const [whole = '0', rest] = fixed.split('.')
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',')
  return rest === undefined ? grouped : `${grouped}.${rest}`
}

export const count = (n: number): string => group(String(Math.round(n)))

/** A count in few characters: 950, 12.3k, 1.2M. */
export function short(n: number): string {
  for (const [size, unit] of [[1e9, 'B'], [1e6, 'M'], [1e3, 'k']] as const) {
    if (Math.abs(n) >= size) return `${(n / size).toFixed(Math.abs(n) >= 100 * size ? 0 : 1)}${unit}`
  }
  return String(Math.round(n * 100) / 100)
}

/** A size: 900 bytes, 12.3 KiB. */
export function bytes(n: number): string {
  for (const [size, unit] of [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']] as const) {
    if (n >= size) return `${(n / size).toFixed(n >= 100 * size ? 0 : 1)} ${unit}`
  }
  return `${n} bytes`
}

/** A share between 0 and 1 as percent. */
export const percent = (share: number, digits = 1): string => `${(share * 100).toFixed(digits)} %`

/** A rate between 0 and 1 as judges are reported: three digits. */
export const rate = (value: number): string => value.toFixed(3)

export function duration(ms: number): string {
  if (ms < 1000) return `${ms < 10 ? Math.round(ms * 10) / 10 : Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`
  return `${Math.floor(ms / 86_400_000)} d ${Math.floor((ms % 86_400_000) / 3_600_000)} h`
}

/** How long ago or how far ahead a time is, in one unit. */
export function ago(time: Date, now = new Date()): string {
  const ms = now.getTime() - time.getTime()
  const size = Math.abs(ms)
  const units: [number, string][] = [[86_400_000, 'd'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']]
  const unit = units.find(([length]) => size >= length)
  if (!unit) return 'now'
  const n = `${Math.floor(size / unit[0])} ${unit[1]}`
  return ms > 0 ? `${n} ago` : `in ${n}`
}

const formats = new Map<string, Intl.DateTimeFormat>()
function format(key: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  let made = formats.get(key)
  if (!made) formats.set(key, (made = new Intl.DateTimeFormat('en-GB', options)))
  return made
}

/** A time in the reader's zone. */
export const time = (t: Date): string =>
  format('time', { day: '2-digit', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' })
    .format(t).replace(',', '')

/** A time without the year and, on request, with milliseconds: for dense lists. */
export const shortTime = (t: Date): string =>
  format('short', { day: '2-digit', month: 'short', hour: '2-digit', minute: '2-digit', second: '2-digit' })
    .format(t).replace(',', '')

export const day = (t: Date, utc = false): string =>
  format(utc ? 'dayutc' : 'day', { day: '2-digit', month: 'short', year: 'numeric', timeZone: utc ? 'UTC' : undefined }).format(t)

/** The same time in UTC, for the title of a time. */
export const utc = (t: Date): string => `${t.toISOString().replace('T', ' ').replace(/\.?0*Z$/, '')} UTC (shown in ${zone()})`

export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`
