import { SelectField } from '../../ui/Field'
import { A } from '../../ui/Link'
import { useCriteria } from '../aliases/EditAlias'
import { rank } from '../judges/ladder'

interface Props { judge: string; anchor?: string; onChange: (change: { judge?: string; anchor?: string }) => void }

/** The judge that rewards: one whose errors were measured. The anchor is another, by another model. */
export function JudgeField({ judge, anchor, onChange }: Props) {
  const criteria = useCriteria()
  const all = criteria.data?.data ?? []
  const judges = all.filter((one) => rank(one.trust) >= rank('measured'))
  const chosen = all.find((one) => one.id === judge)
  const anchors = all.filter((one) => rank(one.trust) >= rank('calibrated') && one.id !== judge && one.judge_model !== chosen?.judge_model)
  if (criteria.data && judges.length === 0) {
    return (
      <div className="rounded-md border border-warn/50 bg-warn-ground px-3 py-2 text-sm">
        <p className="font-medium">It needs a measured judge.</p>
        <p className="text-soft">A judge gives the reward only when its errors were measured: grade what models said, and calibrate it in <A to="judges">Judges</A>.</p>
      </div>
    )
  }
  return (
    <div className="grid gap-3 sm:grid-cols-2">
      <SelectField label="Judge that rewards" value={judge} onChange={(id) => onChange({ judge: id, anchor: '' })} hint="Only judges whose errors were measured"
        options={[{ value: '', label: 'Choose one' }, ...judges.map((one) => ({ value: one.id, label: `${one.name} · ${one.trust} · ${one.judge_model}` }))]} />
      {anchor !== undefined && (
        <SelectField label="Anchor" value={anchor} onChange={(id) => onChange({ anchor: id })}
          hint={anchor ? 'It holds the run when the reward parts from it' : anchors.length ? 'Without one nothing notices when the judge is gamed' : 'None fits: another judge, by another model, of the tier calibrated'}
          options={[{ value: '', label: 'None' }, ...anchors.map((one) => ({ value: one.id, label: `${one.name} · ${one.judge_model}` }))]} />
      )}
    </div>
  )
}
