// The same call for a terminal, with a key in place of the session.
export interface Call { method?: string; path: string; body?: unknown }

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

/** A curl command for a path of the public API, such as /v1/logs?limit=50. */
export function curl({ method = 'GET', path, body }: Call, origin = location.origin): string {
  const lines = [`curl ${method === 'GET' ? '' : `-X ${method} `}${quote(origin + path)}`]
  lines.push(`  -H "Authorization: Bearer $SOVEREIGN_API_KEY"`)
  if (body !== undefined) {
    lines.push(`  -H 'Content-Type: application/json'`, `  -d ${quote(JSON.stringify(body, null, 2))}`)
  }
  return lines.join(' \\\n')
}
