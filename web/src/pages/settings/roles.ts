// Who may change whom. The server decides; this only spares the reader a refusal.
import type { Role } from './shapes'

/** Admins manage members and admins; owners manage everyone. */
export const mayTouch = (mine: Role | '', theirs: Role): boolean => mine === 'owner' || (mine === 'admin' && theirs !== 'owner')

/** The roles that may be given. */
export const mayAssign = (mine: Role | ''): Role[] => mine === 'owner' ? ['owner', 'admin', 'member'] : ['admin', 'member']
