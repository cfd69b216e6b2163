import { renderHook } from '@testing-library/react'
import { describe, expect, test, vi } from 'vitest'
import { handleKey, keyCaps, useKeys } from './keys'

const press = (key: string, target: EventTarget = document.body, more: Partial<KeyboardEventInit> = {}) => {
  const event = new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more })
  Object.defineProperty(event, 'target', { value: target })
  handleKey(event)
  return event
}

describe('keys', () => {
  test('a key runs while its component is mounted, and not afterwards', () => {
    const run = vi.fn()
    const { unmount } = renderHook(() => useKeys('Test', [{ keys: 'x', label: 'X', run }]))
    expect(press('x').defaultPrevented).toBe(true)
    unmount()
    press('x')
    expect(run).toHaveBeenCalledTimes(1)
  })

  test('two keys in a row run once, and the second alone does not', () => {
    const run = vi.fn()
    renderHook(() => useKeys('Test', [{ keys: 'g l', label: 'Logs', run }]))
    press('l')
    expect(run).not.toHaveBeenCalled()
    press('g')
    press('l')
    expect(run).toHaveBeenCalledTimes(1)
  })

  test('letters are text while the reader types, but the command key works', () => {
    const [plain, command] = [vi.fn(), vi.fn()]
    renderHook(() => useKeys('Test', [{ keys: 'y', label: 'Y', run: plain }, { keys: 'mod+k', label: 'K', run: command }]))
    const input = document.createElement('input')
    press('y', input)
    press('k', input, { ctrlKey: true })
    expect(plain).not.toHaveBeenCalled()
    expect(command).toHaveBeenCalledTimes(1)
  })

  test('the newest registration of a key wins', () => {
    const [older, newer] = [vi.fn(), vi.fn()]
    renderHook(() => useKeys('Older', [{ keys: 'z', label: 'Older', run: older }]))
    renderHook(() => useKeys('Newer', [{ keys: 'z', label: 'Newer', run: newer }]))
    press('z')
    expect([older.mock.calls.length, newer.mock.calls.length]).toEqual([0, 1])
  })

  test('keys are written as people know them', () => {
    expect(keyCaps('g l')).toEqual(['g', 'l'])
    expect(keyCaps('mod+k')).toEqual(['Ctrl', 'K'])
    expect(keyCaps('ArrowUp')).toEqual(['↑'])
  })
})
