import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { data, v1 } from '../../api/client'
import { useToast } from '../../app/Toasts'
import { count } from '../../format'
import { Switch } from '../../ui/Switch'
import type { Judge } from './api'
import { needSentence } from './ladder'
import { Start } from './runs'

/** Calibrates a judge, with its price before. */
export function Calibrate({ ws, judge, onClose }: { ws: string; judge: Judge; onClose: () => void }) {
  const queries = useQueryClient()
  const { tell } = useToast()
  const [fresh, setFresh] = useState(false)
  const need = needSentence(judge.labels)
  return (
    <Start title={`Calibrate ${judge.name}`} action="Calibrate" onClose={onClose}
      text={`The judge grades ${count(judge.labels.pass + judge.labels.fail)} items that people graded. What it answered before is not asked again.`}
      inquiry={{ kind: 'calibration', criterion_id: judge.id, ...(fresh && { fresh }) }}
      call={{ path: `/v1/criteria/${judge.id}/calibrations`, body: fresh ? { fresh } : {} }}
      run={async (max) => {
        await data(v1(ws).POST('/v1/criteria/{id}/calibrations', {
          params: { path: { id: judge.id } }, body: { ...(fresh && { fresh }), ...(max !== undefined && { max_cost_usd: max }) },
        }))
        tell('Calibration started')
        await queries.invalidateQueries({ queryKey: ['calibrations', ws, judge.id] })
      }}>
      {need && <p className="rounded-md bg-warn-ground px-3 py-2 text-sm text-warn">For the tier “measured”: {need}, in the half that measures. Until then trust stays provisional.</p>}
      <Switch label="Ask everything again" hint="Models change. Answers of earlier runs are asked, and paid, once more." on={fresh} onChange={setFresh} />
    </Start>
  )
}
