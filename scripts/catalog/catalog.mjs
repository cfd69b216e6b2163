// Writes the built-in catalog, and what the two sources that it is made of do not agree on. See docs/models.md.
//
//   node catalog.mjs [YYYY-MM-DD]
import { writeFileSync } from 'node:fs';
import { leftOut, providers } from './providers.mjs';
import { chats, modelsOf, names, price, priced, versions } from './sources.mjs';

const made = process.argv[2] ?? new Date().toISOString().slice(0, 10);
if (!/^\d{4}-\d{2}-\d{2}$/.test(made) || Number.isNaN(Date.parse(made))) throw new Error(`${made} is no date`);

const kindsOfTokens = ['input', 'cached_input', 'written_input', 'audio_input', 'output', 'reasoning', 'audio_output'];
const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const report = { differ: [], alone: [], out: [], beside: [] };

// What a model's name says that it is not: text in, text out.
const others = [
  [/image|tts|transcri|whisper|realtime|moderation|-live|-ocr|voice|veo|imagen|lyria/, 'not a model of text'],
  [/:batch$/, 'for batches only'],
  [/sonar|-search|deep-research|:online/, 'it searches by itself, at a price for each search'],
];

// Which figure is taken when the sources do not agree: docs/models.md says why.
const rules = {
  price: 'the price source',
  meant: 'the source that means this very model',
  moving: 'the younger source, where prices move',
  window: 'the larger window',
  output: 'no more than the window',
};

const step = (steps, over) => steps.filter((s) => s.over <= over).at(-1);

// merge is the price of both: that of the source that a rule names, with what only the other knows.
const merge = (provider, id, ours, theirs) => {
  if (!ours || !theirs) return (ours ?? theirs).steps;
  const moving = provider.lead === 'check' || id.endsWith('-latest');
  const found = differences(ours.steps, theirs.steps);
  const why = !ours.exactly ? rules.meant : moving ? rules.moving : rules.price;
  const lead = why === rules.price || theirs.steps[0].input === undefined ? ours : theirs;
  const other = lead === ours ? theirs : ours;
  for (const d of found) report.differ.push([id, d.field, d.ours, d.theirs, lead === ours ? d.ours : d.theirs, why]);
  return lead.steps.map((s) => {
    const more = step(other.steps, s.over);
    return { ...more, ...s };
  });
};

const differences = (ours, theirs) => {
  const overs = [...new Set([...ours, ...theirs].map((s) => s.over))].sort((a, b) => a - b);
  return overs.flatMap((over) => kindsOfTokens.flatMap((field) => {
    const [a, b] = [step(ours, over)[field], step(theirs, over)[field]];
    return a === undefined || b === undefined || a === b ? [] : [{ field: over ? `${field} over ${over}` : field, ours: a, theirs: b }];
  }));
};

// tidy drops the tiers that change nothing, and prices of writing into a cache that are for its storage alone.
const tidy = (steps) => steps.map(({ written_input: w, ...s }) => (w >= s.input ? { ...s, written_input: w } : s)).filter((s, i, all) => i === 0 || kindsOfTokens.some((k) => s[k] !== all[i - 1][k]));

// row is a model of the catalog, or the reason why it is none.
const row = (provider, name, kind, ours, theirs) => {
  const id = `${provider.name}/${name}`;
  const not = others.find(([pattern]) => pattern.test(name));
  if (not) return not[1];
  if (!/^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}$/.test(id)) return 'the name has characters that ids have not';
  if (ours?.refused) return ours.refused;
  if (!ours && !theirs) return 'the price is missing';
  const steps = tidy(merge(provider, id, ours, theirs));
  if ((!(steps[0].input > 0) && !name.endsWith(':free')) || (kind === 'chat' && steps[0].output === undefined)) return 'the price is missing';
  if (steps.some((s) => Object.values(s).some((v) => v < 0 || v !== Number(v.toFixed(9))))) return 'the price has more than nine decimals, or is below zero';
  const window = Math.max(ours?.window ?? 0, theirs?.window ?? 0);
  if (window === 0) return 'the context window is missing';
  if (ours?.window && theirs?.window && ours.window !== theirs.window) report.differ.push([id, 'context_window', ours.window, theirs.window, window, rules.window]);
  const output = Math.min(theirs?.output ?? 0, window);
  if (kind === 'chat' && output === 0) return 'the maximum of output is missing';
  if (theirs?.output > window) report.differ.push([id, 'max_output_tokens', '', theirs.output, window, rules.output]);
  if (ours?.apart?.length) for (const what of ours.apart) report.beside.push([id, what]);
  if (kind === 'chat' && !ours) report.alone.push([id, names.check]);
  if (kind !== 'chat') report.alone.push([id, names.prices]);
  return { id, provider: provider.name, upstream_model: name, kind, context_window: window, ...(kind === 'chat' ? { max_output_tokens: output } : {}), price: steps };
};

const models = [];
for (const p of providers) {
  const theirs = p.check && p.kind !== 'cohere' ? chats(p.check) : new Map();
  const enter = (name, kind) => {
    const one = row(p, name, kind, price(p.prices, name, made, kind), theirs.get(name));
    if (typeof one === 'string') report.out.push([`${p.name}/${name}`, one]);
    else models.push(one);
  };
  const means = new Set([...theirs.keys()].map((name) => price(p.prices, name, made, 'chat')?.id));
  for (const name of theirs.keys()) enter(name, 'chat');
  for (const m of modelsOf(p.prices)) {
    if (/embed/.test(m.id)) enter(m.id, 'embedding');
    else if (p.kind === 'cohere') report.out.push([`${p.name}/${m.id}`, 'our cohere wire has no chat']);
    else if (!means.has(m.id)) enter(m.id, 'chat');
  }
}
for (const id of priced) {
  const known = providers.some((p) => p.prices === id) || leftOut.some((l) => (l.prices instanceof RegExp ? l.prices.test(id) : l.prices === id));
  if (!known) throw new Error(`${id} is in no table of providers.mjs`);
}

// plain is a number without an exponent.
const plain = (n) => (Number.isInteger(n) ? String(n) : n.toFixed(9).replace(/0+$/, ''));
const rates = (s) => kindsOfTokens.filter((k) => s[k] !== undefined).map((k) => `"${k}_per_mtok_usd": ${plain(s[k])}`);
const priceText = ([base, ...tiers]) => {
  const list = tiers.map((t) => `{"over_input_tokens": ${t.over}, ${rates(t).join(', ')}}`).join(', ');
  return `{${rates(base).join(', ')}${list && `, "tiers": [${list}]`}}`;
};
const line = (o) => `{${Object.entries(o).map(([k, v]) => `"${k}": ${k === 'price' ? priceText(v) : JSON.stringify(v)}`).join(', ')}}`;
const lines = (rows) => rows.map((r) => `    ${line(r)}`).join(',\n');

models.sort((a, b) => order(a.id, b.id));
const used = providers.filter((p) => models.some((m) => m.provider === p.name)).sort((a, b) => order(a.name, b.name));
for (const p of providers.filter((q) => !used.includes(q))) report.out.push([p.name, 'no model of it is left']);
const shown = used.map(({ prices, check, lead, ...p }) => p);
const source = Object.entries(names).map(([k, name]) => `${name} ${versions[k]}`);
writeFileSync(new URL('../../internal/domain/catalog/builtin.json', import.meta.url), `{
  "source": ${JSON.stringify(source)},
  "made": "${made}",
  "providers": [
${lines(shown)}
  ],
  "models": [
${lines(models)}
  ]
}
`);

const table = (head, rows) => [head, head.map(() => '---'), ...rows.map((r) => r.map((v) => (typeof v === 'number' ? plain(v) : v)))].map((r) => `| ${r.join(' | ')} |`).join('\n');
const sorted = (rows) => rows.sort((a, b) => order(String(a), String(b)));
const gathered = (rows) => { // reason to ids
  const by = new Map();
  for (const [id, why] of sorted(rows)) by.set(why, [...(by.get(why) ?? []), id]);
  return [...by].sort((a, b) => order(a[0], b[0]));
};
const listed = (rows) => gathered(rows).map(([why, ids]) => `**${why}** (${ids.length})\n\n${ids.map((i) => `\`${i}\``).join(', ')}\n`).join('\n');
writeFileSync(new URL('../../docs/models-disagreements.md', import.meta.url), `# What the sources of the built-in catalog do not agree on

Written by \`make catalog\` on ${made}, of ${source.join(' and ')}; [models.md](models.md) has the rules. ${models.length} models of ${used.length} providers
are built in. Prices are dollars per million tokens.

## Disagreements

${table(['Model', 'Field', names.prices, names.check, 'Taken', 'Rule'], sorted(report.differ))}

## In the catalog on the word of one source

${listed(report.alone)}
## In the catalog, with a part of the price that is not charged

${listed(report.beside)}
## Providers that are left out

${table(['Provider', 'Why'], sorted(leftOut.map((l) => [l.prices instanceof RegExp ? l.prices.source.replace(/[\^]/g, '') + '…' : l.prices, l.why])))}

## Models that are left out

${listed(report.out)}`);
console.log(`${models.length} models of ${used.length} providers; ${report.differ.length} disagreements; ${report.out.length} left out`);
