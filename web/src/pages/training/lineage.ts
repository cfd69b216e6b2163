// Where the things that a model was made of are drawn: in columns from the left to the right where there is room,
// otherwise one below the other, with the edges at the left.
import type { Lineage } from './api'

export type Node = Lineage['nodes'][number]
export interface Box { node: Node; x: number; y: number; width: number; height: number }
export interface Layout { boxes: Box[]; paths: { from: string; to: string; d: string }[]; height: number; upright: boolean }

const box = { height: 48, least: 150, most: 240, gapX: 44, gapY: 12 }
const gutter = 30 // of the upright layout, for edges

/** How far each thing is from the beginning: after everything that went into it. */
export function depths(lineage: Lineage): Map<string, number> {
  const into = new Map<string, string[]>()
  for (const edge of lineage.edges) into.set(edge.to, [...(into.get(edge.to) ?? []), edge.from])
  const known = new Map<string, number>()
  const depth = (id: string, seen: Set<string>): number => {
    if (known.has(id)) return known.get(id)!
    if (seen.has(id)) return 0 // no lineage has a circle; one that had would still be drawn
    const found = Math.max(-1, ...(into.get(id) ?? []).map((from) => depth(from, new Set([...seen, id])))) + 1
    known.set(id, found)
    return found
  }
  for (const node of lineage.nodes) depth(node.id, new Set())
  // What nothing went into stands just before the first thing that it went into, not at the far left.
  for (const node of lineage.nodes) {
    const next = lineage.edges.filter((edge) => edge.from === node.id).map((edge) => known.get(edge.to) ?? 0)
    if (!into.has(node.id) && next.length) known.set(node.id, Math.min(...next) - 1)
  }
  return known
}

const order = ['model_version', 'base_model', 'dataset', 'training_file', 'certificate']

/** The things in the order of making, each after what went into it. */
export function inOrder(lineage: Lineage): Node[] {
  const at = depths(lineage)
  const kind = (node: Node) => (order.indexOf(node.type) + order.length + 1) % (order.length + 1)
  return [...lineage.nodes].sort((a, b) => at.get(a.id)! - at.get(b.id)! || kind(a) - kind(b) || a.name.localeCompare(b.name))
}

export function layout(lineage: Lineage, width: number): Layout {
  const at = depths(lineage)
  const nodes = inOrder(lineage)
  const columns = Math.max(...nodes.map((node) => at.get(node.id)!), 0) + 1
  const boxWidth = Math.min(box.most, (width - (columns - 1) * box.gapX) / columns)
  const upright = boxWidth < box.least
  const boxes: Box[] = []
  const rows = new Map<number, number>()
  const most = Math.max(...Array.from({ length: columns }, (_, i) => nodes.filter((node) => at.get(node.id) === i).length), 1)
  const pitch = box.height + box.gapY
  nodes.forEach((node, i) => {
    if (upright) return void boxes.push({ node, x: gutter, y: i * pitch, width: width - gutter, height: box.height })
    const column = at.get(node.id)!
    const row = rows.get(column) ?? 0
    rows.set(column, row + 1)
    const here = nodes.filter((other) => at.get(other.id) === column).length
    boxes.push({ node, x: column * (boxWidth + box.gapX), y: (row + (most - here) / 2) * pitch, width: boxWidth, height: box.height })
  })
  const by = new Map(boxes.map((one) => [one.node.id, one]))
  const paths = lineage.edges.flatMap(({ from, to }) => {
    const [a, b] = [by.get(from), by.get(to)]
    return a && b ? [{ from, to, d: upright ? beside(a, b) : across(a, b) }] : []
  })
  return { boxes, paths, height: (upright ? nodes.length : most) * pitch - box.gapY, upright }
}

const middle = (of: Box) => of.y + of.height / 2

function across(a: Box, b: Box): string {
  const [x, end] = [a.x + a.width, b.x - 3]
  const bend = Math.max(16, (end - x) / 2)
  return `M${x},${middle(a)}C${x + bend},${middle(a)} ${end - bend},${middle(b)} ${end},${middle(b)}`
}

/** An edge at the left of two boxes: the longer, the further out. */
function beside(a: Box, b: Box): string {
  const out = Math.min(gutter - 4, 8 + Math.abs(middle(b) - middle(a)) / 24)
  return `M${a.x},${middle(a)}C${a.x - out},${middle(a)} ${b.x - out},${middle(b)} ${b.x - 3},${middle(b)}`
}

const kinds: Record<Node['type'], string> = {
  base_model: 'base model', model_version: 'model', fine_tuning_job: 'fine-tuning job', grpo_run: 'GRPO run', raft_round: 'RAFT round',
  dataset: 'dataset', training_file: 'file', certificate: 'certificate of a judge',
}
export const kindOf = (node: Node): string => kinds[node.type] ?? node.type

/** The page of a thing; nothing where it has none. */
export function placeOf(node: Node): string | undefined {
  switch (node.type) {
    case 'model_version': return `training/models/${node.id}`
    case 'fine_tuning_job': case 'grpo_run': return `training/runs/${node.id}`
    case 'raft_round': return `training/rounds/${node.id}`
    case 'dataset': return `datasets/${node.id}`
    default: return undefined
  }
}
