import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { afterEach, expect, test, vi } from 'vitest'
import { Table, type Column } from './Table'

afterEach(cleanup)

const columns: Column<{ id: string; name: string }>[] = [{ id: 'name', header: 'Name', cell: (row) => row.name }]
const rows = ['a', 'b', 'c'].map((id) => ({ id, name: `<b>${id}</b>` }))

test('arrows choose a row and Enter opens it', () => {
  const open = vi.fn()
  render(<Table label="Things" columns={columns} rows={rows} rowKey={(row) => row.id} onOpen={open} />)
  const grid = screen.getByRole('grid', { name: 'Things' })
  fireEvent.keyDown(grid, { key: 'ArrowDown' })
  fireEvent.keyDown(grid, { key: 'ArrowDown' })
  fireEvent.keyDown(grid, { key: 'Enter' })
  expect(open).toHaveBeenCalledWith(rows[1], 1)
})

test('markup in a cell is text', () => {
  const { container } = render(<Table label="Things" columns={columns} rows={rows} rowKey={(row) => row.id} />)
  expect(container.querySelector('b')).toBeNull()
  expect(screen.getByText('<b>a</b>')).toBeTruthy()
})
