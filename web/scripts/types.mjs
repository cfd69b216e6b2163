// Writes the types of the API: openapi/NAME.json becomes src/api/NAME.d.ts.
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'

for (const name of ['v1', 'dashboard']) {
  const from = `openapi/${name}.json`
  if (!existsSync(from)) continue
  execFileSync('node_modules/.bin/openapi-typescript', [from, '-o', `src/api/${name}.d.ts`], { stdio: 'inherit' })
}
