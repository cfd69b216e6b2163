// The pages of a workspace. A page is a row: where it is, what loads it, and how it stands in the navigation.
import {
  ActivityIcon, AwardIcon, BoxesIcon, CompassIcon, DatabaseIcon, FlaskConicalIcon, GaugeIcon, ListChecksIcon,
  ScrollTextIcon, SettingsIcon, SplitIcon, WalletIcon, type LucideIcon,
} from 'lucide-react'
import type { ComponentType } from 'react'

type Load = () => Promise<{ default: ComponentType }>

export interface Entry {
  id: string
  label: string
  /** Below /w/{workspace}; the first is where the navigation leads. */
  paths: [string, Load][]
  /** The letter after g. */
  letter: string
  icon: LucideIcon
  about: string
}

const home: Load = () => import('./pages/home/Home')

/** All twelve. */
export const entries: Entry[] = [
  { id: 'home', label: 'Home', letter: 'h', icon: CompassIcon, about: 'What to do next, spend, alarms', paths: [['', home]] },
  {
    id: 'logs', label: 'Logs', letter: 'l', icon: ScrollTextIcon, about: 'Every logged request',
    paths: [['logs', () => import('./pages/logs/Logs')]],
  },
  {
    id: 'traces', label: 'Traces', letter: 't', icon: ActivityIcon, about: 'Whole runs, step by step',
    paths: [['traces', () => import('./pages/traces/Traces')], ['traces/$trace', () => import('./pages/traces/Trace')]],
  },
  {
    id: 'review', label: 'Review', letter: 'r', icon: ListChecksIcon, about: 'Grade what waits in queues',
    paths: [['review', () => import('./pages/review/Queues')], ['review/$queue', () => import('./pages/review/Queue')]],
  },
  {
    id: 'judges', label: 'Judges', letter: 'j', icon: AwardIcon, about: 'Judges, calibrations, certificates',
    paths: [
      ['judges', () => import('./pages/judges/Judges')], ['judges/$judge', () => import('./pages/judges/Judge')],
      ['judges/$judge/certificate', () => import('./pages/judges/Certificate')], ['judges/$judge/adjudication', () => import('./pages/judges/Adjudication')],
    ],
  },
  {
    id: 'datasets', label: 'Datasets', letter: 'd', icon: DatabaseIcon, about: 'Examples frozen from logs',
    paths: [['datasets', () => import('./pages/datasets/Datasets')], ['datasets/$dataset', () => import('./pages/datasets/Dataset')]],
  },
  { id: 'evals', label: 'Evals', letter: 'e', icon: FlaskConicalIcon, about: 'Compare models, gate a deploy', paths: [['evals', () => import('./pages/evals/Evals')], ['evals/$eval', () => import('./pages/evals/Eval')]] },
  { id: 'aliases', label: 'Aliases', letter: 'a', icon: SplitIcon, about: 'Names, canaries, gates', paths: [['aliases', () => import('./pages/aliases/Aliases')], ['aliases/$alias', () => import('./pages/aliases/Alias')]] },
  { id: 'rewards', label: 'Rewards', letter: 'w', icon: GaugeIcon, about: 'Reward sessions and their anchor', paths: [['rewards', () => import('./pages/rewards/Rewards')], ['rewards/$session', () => import('./pages/rewards/Session')]] },
  {
    id: 'training', label: 'Training', letter: 'n', icon: BoxesIcon, about: 'Runs, models, endpoints, RAFT, tools',
    paths: [
      ['training', () => import('./pages/training/Training')], ['training/runs/$run', () => import('./pages/training/Run')],
      ['training/models/$version', () => import('./pages/training/Version')], ['training/rounds/$round', () => import('./pages/training/Round')],
      ['training/endpoints/$endpoint', () => import('./pages/endpoints/Endpoint')],
    ],
  },
  { id: 'wallet', label: 'Wallet', letter: 'm', icon: WalletIcon, about: 'Balance, holds, usage, statements', paths: [['wallet', () => import('./pages/wallet/Wallet')], ['wallet/statements/$month', () => import('./pages/wallet/Statement')]] },
  { id: 'settings', label: 'Settings', letter: 's', icon: SettingsIcon, about: 'Team, keys, limits, consent', paths: [['settings', () => import('./pages/settings/Settings')]] },
]

export const shownEntries = entries.filter((entry) => entry.paths.length > 0)
