// Written anew by `make web` from /dashboard/api/openapi.json.
export type paths = Record<string, never>
