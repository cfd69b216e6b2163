// The state of a person who grades: the item on the page, and what can be done with it.
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useCallback, useEffect, useMemo, useRef, useState } from 'react'
import { call } from '../../api/client'
import { asApiError } from '../../api/errors'
import { announce } from '../../app/announce'
import type { Grade, Item, MyCounts, Offer, Verdict } from './api'
import { clockAhead, Trail } from './grading'

export interface Draft { critique: string; unsure: boolean; grade: string }

export const emptyDraft: Draft = { critique: '', unsure: false, grade: '' }

const draftOf = (grade: Grade): Draft => ({
  critique: grade.critique, unsure: grade.unsure, grade: grade.grade === null ? '' : String(grade.grade),
})

function session(): Storage | null {
  try {
    return window.sessionStorage
  } catch {
    return null
  }
}

type Shown = { kind: 'loading' } | { kind: 'item'; item: Item } | { kind: 'nothing'; done: boolean }

interface Options {
  ws: string
  queue: string
  /** The item of the address; empty for the first open one. */
  wanted: string
  onItem: (id: string) => void
  leaseMinutes: number
  autoAdvance: boolean
}

export function useGrading({ ws, queue, wanted, onItem, leaseMinutes, autoAdvance }: Options) {
  const queries = useQueryClient()
  const [shown, setShown] = useState<Shown>({ kind: 'loading' })
  const [mine, setMine] = useState<MyCounts | null>(null)
  const [draft, setDraft] = useState<Draft>(emptyDraft)
  const [error, setError] = useState<unknown>(null)
  const [ahead, setAhead] = useState(0) // milliseconds, of the server's clock
  const trail = useMemo(() => new Trail(`review.trail.${queue}`, session()), [queue])
  const item = shown.kind === 'item' ? shown.item : null
  const latest = useRef({ item, draft, onItem })
  latest.current = { item, draft, onItem }
  const drafts = useRef(new Map<string, Draft>()) // what was written, so that an undone grade keeps its words

  const show = useCallback((next: Item) => {
    trail.see(next.id)
    setShown({ kind: 'item', item: next })
    if (latest.current.item?.id !== next.id) {
      setDraft(next.grade ? draftOf(next.grade) : drafts.current.get(next.id) ?? emptyDraft)
      announce(`Item ${trail.place(next.id)}, ${next.my_state}. ${next.reason}`)
    }
    latest.current.onItem(next.id)
  }, [trail])

  const run = useMutation<void, unknown, () => Promise<void>>({
    mutationFn: (todo) => todo(),
    onMutate: () => setError(null),
    onError: setError,
    onSettled: () => {
      for (const part of ['progress', 'agreement']) void queries.invalidateQueries({ queryKey: ['queue', ws, queue, part] })
      void queries.invalidateQueries({ queryKey: ['queue', ws, queue], exact: true })
      void queries.invalidateQueries({ queryKey: ['queues', ws] })
    },
  })

  const claim = useCallback(async () => {
    const offer = await call<Offer>(ws, 'POST', `/queues/${queue}/claim`)
    setMine(offer.mine)
    if (offer.item?.claim) setAhead(clockAhead(offer.item.claim.lease_until, leaseMinutes, Date.now()))
    if (offer.item) show(offer.item)
    else {
      setShown({ kind: 'nothing', done: offer.done })
      announce(offer.done ? 'Nothing is left for you in this queue' : 'Others hold the rest of this queue')
      latest.current.onItem('')
    }
  }, [ws, queue, leaseMinutes, show])

  const open = useCallback(async (id: string) => {
    if (!id) return claim()
    try {
      show(await call<Item>(ws, 'GET', `/queues/${queue}/items/${id}`))
    } catch (e) {
      if (asApiError(e).status !== 404) throw e
      await claim() // the item went to another, or the link is somebody else's
    }
  }, [ws, queue, claim, show])

  // The first item, and items of the address that another did not set.
  const asked = useRef<string | null>(null)
  useEffect(() => {
    if (asked.current !== null && (wanted === '' || wanted === latest.current.item?.id)) return
    asked.current = wanted
    run.mutate(() => open(wanted))
  }, [wanted, open, run.mutate])

  const busy = run.isPending
  const act = (todo: () => Promise<void>) => void (busy || run.mutate(todo))
  const post = (what: string, body?: unknown) => call<Item>(ws, 'POST', `/queues/${queue}/items/${item!.id}/${what}`, { body })
  const settle = async (next: Item, said: string) => {
    announce(said)
    const { graded, skipped } = { graded: next.my_state === 'graded' ? 1 : 0, skipped: next.my_state === 'skipped' ? 1 : 0 }
    setMine((m) => m && { ...m, claimed: Math.max(0, m.claimed - 1), graded: m.graded + graded, skipped: m.skipped + skipped })
    drafts.current.set(next.id, latest.current.draft)
    if (autoAdvance) await claim()
    else show(next)
  }

  return {
    shown, item, mine, draft, error, busy, trail, ahead,
    setDraft: (change: Partial<Draft>) => setDraft((old) => ({ ...old, ...change })),
    canGrade: item?.my_state === 'claimed',
    canUndo: item?.my_state === 'graded' || item?.my_state === 'skipped',
    grade: (verdict: Verdict) => act(async () => {
      if (item?.my_state !== 'claimed') return
      const { critique, unsure, grade } = latest.current.draft
      const sure = grade.trim() === '' ? undefined : Number(grade)
      const next = await post('grade', {
        claim: item.claim!.id, verdict, digest: item.digest, ...(critique.trim() && { critique: critique.trim() }),
        ...(unsure && { unsure }), ...(sure !== undefined && { grade: sure }),
      })
      await settle(next, `Graded: ${verdict}`)
    }),
    skip: () => act(async () => {
      if (item?.my_state !== 'claimed') return
      const reason = latest.current.draft.critique.trim()
      await settle(await post('skip', { claim: item.claim!.id, ...(reason && { reason }) }), 'Skipped')
    }),
    /** Takes back what was done with this item; where it is untouched, with the one before. */
    undo: () => act(async () => {
      let id = item?.id
      if (!item || item.my_state === 'claimed' || item.my_state === 'open') id = trail.before(item?.id)
      if (!id) return
      const next = await call<Item>(ws, 'POST', `/queues/${queue}/items/${id}/undo`)
      announce('Undone')
      setMine((m) => m && { ...m, claimed: m.claimed + 1, graded: Math.max(0, m.graded - 1) })
      show(next)
    }),
    back: () => act(async () => {
      const id = trail.before(item?.id)
      if (id) await open(id)
    }),
    /** The next item that was seen, else a new one. */
    forward: () => act(async () => {
      const id = trail.after(item?.id)
      await (id ? open(id) : claim())
    }),
    renew: () => act(claim),
  }
}

export type Grading = ReturnType<typeof useGrading>
