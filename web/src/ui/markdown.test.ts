import { expect, test } from 'vitest'
import { parseInline, parseMarkdown, safeHref } from './markdown'

test('raw HTML and images stay text', () => {
  const blocks = parseMarkdown('<img src=x onerror=alert(1)>\n\n![x](https://evil.test/a.png)')
  expect(blocks).toEqual([
    { kind: 'paragraph', content: [{ kind: 'text', text: '<img src=x onerror=alert(1)>' }] },
    { kind: 'paragraph', content: [{ kind: 'text', text: '![x](https://evil.test/a.png)' }] },
  ])
})

test('a link that is not http, https or mail stays text', () => {
  for (const href of ['javascript:alert(1)', 'data:text/html,x', ' javascript:alert(1)', '//evil.test', 'vbscript:x']) {
    expect(parseInline(`[x](${href})`).some((part) => part.kind === 'link')).toBe(false)
  }
  expect(safeHref('https://example.com/a')).toBe('https://example.com/a')
})

test('the shown text holds every character of the source but marks', () => {
  const flat = parseInline('a **b** `c` *d* [e](https://f.test/)').map((part) => part.text).join('')
  expect(flat).toBe('a b c d e')
})

test('an open code fence takes the rest', () => {
  expect(parseMarkdown('```\na\nb')).toEqual([{ kind: 'code', text: 'a\nb' }])
})
