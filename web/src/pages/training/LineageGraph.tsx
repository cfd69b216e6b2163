import clsx from 'clsx'
import { useState } from 'react'
import { ChartFrame } from '../../chart/frame'
import { A } from '../../ui/Link'
import type { Lineage } from './api'
import { inOrder, kindOf, layout, placeOf, type Box } from './lineage'

/** What a model was made of. Things that have a page are links, in the order of making. */
export function LineageGraph({ of }: { of: Lineage }) {
  const [near, setNear] = useState('')
  const nodes = inOrder(of)
  const name = new Map(of.nodes.map((node) => [node.id, node.name]))
  const into = (id: string) => of.edges.filter((edge) => edge.to === id).map((edge) => name.get(edge.from) ?? edge.from)
  return (
    <ChartFrame title="What went into what" height={(width) => layout(of, width).height}
      summary={nodes.filter((node) => into(node.id).length > 0).map((node) => `${node.name}, a ${kindOf(node)}, was made of ${into(node.id).join(', ')}.`).join(' ')}
      table={{ headers: ['Thing', 'Kind', 'Made of', 'SHA-256'], rows: nodes.map((node) => [node.name, kindOf(node), into(node.id).join(', ') || '–', node.sha256 ?? '–']) }}>
      {(width) => {
        const drawn = layout(of, width)
        return (
          <div className="relative" style={{ height: drawn.height }}>
            <svg width={width} height={drawn.height} aria-hidden className="absolute inset-0">
              <defs><marker id="into" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto-start-reverse"><path d="M0,0L6,3L0,6z" fill="var(--color-edge)" /></marker></defs>
              {drawn.paths.map((path) => (
                <path key={`${path.from} ${path.to}`} d={path.d} fill="none" markerEnd="url(#into)" strokeWidth={near === path.from || near === path.to ? 2 : 1.25}
                  stroke={near === path.from || near === path.to ? 'var(--color-accent)' : 'var(--color-edge)'} />
              ))}
            </svg>
            {drawn.boxes.map((one) => <Thing key={one.node.id} box={one} own={one.node.id === of.id} onNear={setNear} />)}
          </div>
        )
      }}
    </ChartFrame>
  )
}

function Thing({ box, own, onNear }: { box: Box; own: boolean; onNear: (id: string) => void }) {
  const { node } = box
  const to = own ? undefined : placeOf(node)
  const look = clsx('absolute flex flex-col justify-center overflow-hidden rounded-md border px-2.5', own ? 'border-accent bg-accent-ground' : 'border-line bg-raised', to && 'hover:border-edge')
  const inside = <>
    <span className="truncate text-xs text-faint">{kindOf(node)}{own && ' · this one'}</span>
    <span className={clsx('truncate text-sm', to ? 'text-accent' : 'text-text')}>{node.name}</span>
  </>
  const shared = {
    style: { left: box.x, top: box.y, width: box.width, height: box.height }, title: `${node.name}${node.sha256 ? ` · sha256 ${node.sha256}` : ''}`,
    onMouseEnter: () => onNear(node.id), onMouseLeave: () => onNear(''), onFocus: () => onNear(node.id), onBlur: () => onNear(''),
  }
  return to ? <A to={to} {...shared} className={look}>{inside}</A> : <div {...shared} className={look}>{inside}</div>
}
