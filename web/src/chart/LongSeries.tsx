// A series of many thousand points, by uPlot on a canvas. For short series use LineChart.
import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { short, time } from '../format'
import { ChartFrame, palette } from './frame'

interface Props {
  title: string
  summary: string
  x: number[] // seconds, or numbers
  series: { name: string; values: (number | null)[] }[]
  xTime?: boolean
  height?: number
}

const inTable = 500 // rows of the table view, evenly spread

export default function LongSeries({ title, summary, x, series, xTime = true, height = 220 }: Props) {
  const every = Math.max(1, Math.ceil(x.length / inTable))
  const rows = x.map((_, i) => i).filter((i) => i % every === 0)
  return (
    <ChartFrame title={title} summary={summary} height={height} table={{
      headers: [xTime ? 'Time' : 'x', ...series.map((s) => s.name)],
      rows: rows.map((i) => [xTime ? time(new Date(x[i]! * 1000)) : x[i]!, ...series.map((s) => (s.values[i] === null ? '–' : short(s.values[i]!)))]),
    }}>
      {(width) => <Canvas {...{ width, height, x, series, xTime }} />}
    </ChartFrame>
  )
}

function Canvas({ width, height, x, series, xTime }: { width: number; height: number } & Pick<Props, 'x' | 'series' | 'xTime'>) {
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const style = getComputedStyle(document.documentElement)
    const dark = style.colorScheme === 'dark' || (style.colorScheme !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches)
    const pick = (pair: string) => /light-dark\((#\w+),(#\w+)\)/.exec(pair)?.[dark ? 2 : 1] ?? pair
    const [ink, line] = dark ? ['#8e9896', '#2b3132'] : ['#656e6c', '#e0e3e1']
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } }
    const plot = new uPlot({
      width, height: height - 30, scales: { x: { time: xTime } }, axes: [axis, axis],
      series: [{}, ...series.map((s, i) => ({ label: s.name, stroke: pick(palette[i % palette.length]!), width: 1.5 }))],
    }, [x, ...series.map((s) => s.values)] as uPlot.AlignedData, box.current!)
    return () => plot.destroy()
  }, [width, height, x, series, xTime])
  return <div ref={box} aria-hidden />
}
