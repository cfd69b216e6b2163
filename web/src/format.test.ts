import { expect, test } from 'vitest'
import { ago, count, duration, exactMoney, money, short, utc } from './format'

test('money shows small amounts, and all digits on request', () => {
  expect(money(1234.5)).toBe('$1,234.50')
  expect(money(0.773)).toBe('$0.77')
  expect(money(0.0123)).toBe('$0.0123')
  expect(money(0.000513)).toBe('$0.000513')
  expect(money(0.0000297)).toBe('$0.000030') // under the one above it
  expect(money(0.000000123)).toBe('$0.000000123')
  expect(money(-3)).toBe('−$3.00')
  expect(exactMoney(0.000000001)).toBe('0.000000001 USD')
  expect(exactMoney(12)).toBe('12.00 USD')
})

test('counts are grouped or short', () => {
  expect(count(1234567)).toBe('1,234,567')
  expect(short(1234567)).toBe('1.2M')
  expect(short(950)).toBe('950')
})

test('times say their unit', () => {
  expect(duration(12)).toBe('12 ms')
  expect(duration(61_000)).toBe('1 min 1 s')
  expect(ago(new Date(0), new Date(90_000))).toBe('1 min ago')
  expect(ago(new Date(90_000), new Date(0))).toBe('in 1 min')
  expect(utc(new Date(0))).toContain('1970-01-01 00:00:00 UTC')
})
