import { count, percent } from '../format'

interface Props {
  title: string
  rows: [string, string]
  columns: [string, string]
  /** By row, then by column. */
  cells: [[number, number], [number, number]]
  rowTitle: string
  columnTitle: string
  onOpen?: (row: number, column: number) => void
}

/** A confusion matrix. It is a table, so that it needs no second form. */
export function Matrix({ title, rows, columns, cells, rowTitle, columnTitle, onOpen }: Props) {
  const total = cells.flat().reduce((a, b) => a + b, 0)
  return (
    <table className="text-sm">
      <caption className="mb-1 text-left text-xs font-medium text-soft">{title}</caption>
      <thead>
        <tr><td /><th colSpan={2} scope="colgroup" className="pb-1 text-xs font-normal text-faint">{columnTitle}</th></tr>
        <tr className="text-xs text-soft"><th scope="col" className="pr-3 text-left font-normal text-faint">{rowTitle}</th>
          {columns.map((c) => <th key={c} scope="col" className="px-2 pb-1 font-medium">{c}</th>)}</tr>
      </thead>
      <tbody>
        {rows.map((row, r) => (
          <tr key={row}>
            <th scope="row" className="pr-3 text-left text-xs font-medium text-soft">{row}</th>
            {columns.map((_, c) => {
              const n = cells[r]![c]!
              const inner = <><span className="block text-base font-semibold">{count(n)}</span>
                <span className="block text-xs text-soft">{total ? percent(n / total) : '–'}</span></>
              return (
                <td key={c} className={`h-16 w-28 border border-line text-center ${r === c ? 'bg-pass-ground' : 'bg-fail-ground'}`}>
                  {onOpen && n > 0 ? <button type="button" className="size-full" onClick={() => onOpen(r, c)}>{inner}</button> : inner}
                </td>
              )
            })}
          </tr>
        ))}
      </tbody>
    </table>
  )
}
