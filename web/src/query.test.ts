import { expect, test } from 'vitest'
import { flag, int, oneOf, parseSearch, readState, stringifySearch, text, writeState } from './query'

const schema = { model: text(), page: int(1, 1, 100), open: flag, by: oneOf(['day', 'tag'], 'day') }

test('a written state reads back as itself, and defaults are not written', () => {
  const state = { model: 'a & b="c"', page: 7, open: true, by: 'tag' as const }
  const query = parseSearch(stringifySearch(writeState(schema, state)))
  expect(readState(schema, query)).toEqual(state)
  expect(writeState(schema, { model: '', page: 1, open: false, by: 'day' })).toEqual({})
})

test('a broken value is the default', () => {
  expect(readState(schema, { page: '999', open: 'yes', by: 'week' })).toEqual({ model: '', page: 1, open: false, by: 'day' })
  expect(readState(schema, { page: '1e9' }).page).toBe(1)
})

test('numbers in a query string stay text, never JSON', () => {
  expect(parseSearch('?tag=123&x=true&y=%7B%7D')).toEqual({ tag: '123', x: 'true', y: '{}' })
})
