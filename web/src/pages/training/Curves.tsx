import { LineChart } from '../../chart/LineChart'
import { Section } from '../../ui/Page'
import { chartsOf, figure, said, type Chart, type Curves as Shape } from './curves'

/** The metrics of a run, a chart for each that is known; the others are folded. */
export function Curves({ curves, live }: { curves: Shape; live: boolean }) {
  const { first, rest } = chartsOf(curves)
  if (first.length + rest.length === 0) {
    return <Section title="Curves"><p className="text-sm text-soft">{live ? 'The first figures come with the first steps.' : 'It ended before its first step.'}</p></Section>
  }
  return (
    <Section title="Curves" aside={live ? 'followed while it runs' : undefined}>
      <Grid charts={first} />
      {rest.length > 0 && (
        <details className="mt-4"><summary className="text-sm text-soft">{rest.length} more of the engine’s own</summary><div className="mt-3"><Grid charts={rest} /></div></details>
      )}
    </Section>
  )
}

const Grid = ({ charts }: { charts: Chart[] }) => (
  <div className="grid gap-x-6 gap-y-5 lg:grid-cols-2">
    {charts.map((chart) => (
      <div key={chart.title} className="min-w-0">
        <LineChart title={chart.title} xLabel="Step" yFormat={figure} height={190} series={chart.series} summary={said(chart)} />
      </div>
    ))}
  </div>
)
