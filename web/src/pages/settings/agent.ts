/** A browser's name for itself, in words: "Firefox on Linux". The whole text is shown where these are not found. */
export function agentText(agent: string): string {
  const find = (pairs: [RegExp, string][]) => pairs.find(([pattern]) => pattern.test(agent))?.[1]
  const browser = find([
    [/Edg\//, 'Edge'], [/OPR\//, 'Opera'], [/Firefox\//, 'Firefox'], [/HeadlessChrome\//, 'Chromium (headless)'],
    [/Chrome\//, 'Chrome'], [/Safari\//, 'Safari'], [/curl\//, 'curl'],
  ])
  const system = find([
    [/Android/, 'Android'], [/iPhone|iPad/, 'iOS'], [/Windows/, 'Windows'], [/Mac OS X/, 'macOS'], [/CrOS/, 'ChromeOS'], [/Linux/, 'Linux'],
  ])
  return browser ? (system ? `${browser} on ${system}` : browser) : agent || 'unknown'
}
