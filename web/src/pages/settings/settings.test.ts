import { expect, test } from 'vitest'
import { actorText, changes } from '../../audit'
import { agentText } from './agent'
import { firstCall } from './Keys'
import { checkLimits, limitsText, localTime, noLimits, toChange, toForm } from './limits'
import { mayAssign, mayTouch } from './roles'
import type { Limits } from './shapes'

const some: Limits = {
  requests_per_minute: 10, tokens_per_minute: 0, concurrency: 0, budget_day_usd: 2.5, budget_month_usd: 0, models: ['sim/*', 'support'],
  scope: 'inference', expires_at: '2026-12-01T12:00:00.000Z', allowed_addresses: ['10.0.0.0/8'],
}

test('limits go into the form and back without a change', () => {
  const form = toForm(some)
  expect(toChange(form, form)).toEqual({})
  const sent = toChange(form)
  expect(sent).toEqual({
    requests_per_minute: 10, budget_day_usd: 2.5, models: ['sim/*', 'support'], scope: 'inference', expires_at: '2026-12-01T12:00:00.000Z',
    allowed_addresses: ['10.0.0.0/8'],
  })
})

test('an emptied limit is sent as none, so that an undo takes it away', () => {
  expect(toChange(noLimits, toForm(some))).toEqual({
    requests_per_minute: 0, budget_day_usd: 0, models: [], scope: 'full', expires_at: '', allowed_addresses: [],
  })
})

test('what is no number is named and not sent silently', () => {
  expect(Object.keys(checkLimits({ ...noLimits, concurrency: '1.5', budget_day_usd: '1.5', tokens_per_minute: 'x' }))).toEqual(['tokens_per_minute', 'concurrency'])
  expect(limitsText(some)).toBe('inference only, 10 requests/min, $2.5 a day, 2 models, from some addresses')
  expect(localTime(null)).toBe('')
})

test('an admin touches no owner, and makes none', () => {
  expect(mayTouch('admin', 'owner')).toBe(false)
  expect(mayTouch('owner', 'owner')).toBe(true)
  expect(mayTouch('member', 'member')).toBe(false)
  expect(mayAssign('admin')).not.toContain('owner')
})

test('the first request of a key is one that works', () => {
  const command = firstCall('sk_1', 'sim/chat', 'http://x')
  expect(command).toContain('Bearer sk_1')
  expect(JSON.parse(/-d '(.*)'$/.exec(command)![1]!)).toEqual({ model: 'sim/chat', messages: [{ role: 'user', content: 'Hello' }] })
})

test('the audit trail shows what differs and nothing else', () => {
  expect(changes(null, { name: 'a', percent: 0, list: [], updated_at: 'x' })).toEqual([
    { name: 'name', before: '–', after: 'a' }, { name: 'percent', before: '–', after: '0' },
  ])
  expect(changes({ a: { b: 1, c: 2 } }, { a: { b: 1, c: 3 } })).toEqual([{ name: 'a.c', before: '2', after: '3' }])
  expect(changes({ a: 1 }, { a: 1 })).toEqual([])
  expect(changes({ ['__proto__x']: 1 }, null)).toHaveLength(1)
})

test('an actor is a person, a key, or what acted', () => {
  const people = new Map([['usr_1', 'ann@example.com']])
  expect(actorText({ kind: 'key', user_id: 'usr_1', key_id: 'key_1' }, people)).toBe('ann@example.com · key key_1')
  expect(actorText({ kind: 'session', user_id: 'usr_2', session_id: 'ses_1' }, people)).toBe('usr_2')
  expect(actorText({ kind: 'gate' })).toBe('gate')
})

test('a browser is named in words, and what is not known is shown whole', () => {
  expect(agentText('Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0')).toBe('Firefox on Linux')
  expect(agentText('thing/1.0')).toBe('thing/1.0')
  expect(agentText('')).toBe('unknown')
})
