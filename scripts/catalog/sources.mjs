// Reads the two sources. Of the checking one only its data is read: package.json puts nothing in the place of what its code
// would need, which is large, and of which not all can be installed. Prices become one shape: [{over, input, cached_input,
// …}], the first over nothing.
import { readFileSync } from 'node:fs';
import { calcPrice, waitForUpdate } from '@pydantic/genai-prices';

const home = new URL('node_modules/', import.meta.url);
const json = (path) => JSON.parse(readFileSync(new URL(path, home), 'utf8'));

export const names = { prices: '@pydantic/genai-prices', check: '@earendil-works/pi-ai' };
export const versions = Object.fromEntries(Object.entries(names).map(([k, name]) => [k, json(`${name}/package.json`).version]));

// kinds of tokens, as the price source names them.
const tokens = {
  input_mtok: 'input', cache_read_mtok: 'cached_input', cache_write_mtok: 'written_input', input_audio_mtok: 'audio_input',
  output_mtok: 'output', output_reasoning_mtok: 'reasoning', output_audio_mtok: 'audio_output',
};

// What is only charged when a request asks for more than our wires let it ask for, and what says so.
const apart = {
  cache_write_1h_mtok: 'writing into the cache for an hour',
  cache_audio_read_mtok: 'audio read from the cache',
  web_searches_kcount: 'the provider\'s own web search',
  storage_searches_kcount: 'the provider\'s own file search',
};
const notInText = { input_image_mtok: 'images', input_video_mtok: 'video' }; // which our embeddings do not take

// exact is a price without the noise of floats.
const exact = (v) => {
  const n = Number(v.toFixed(9));
  return Math.abs(n - v) <= 1e-12 ? n : v;
};

const at = (v, over) => (typeof v === 'number' ? v : v.tiers.reduce((p, t) => (over >= t.start ? t.price : p), v.base));

// steps turns {kind of token: price or tiers} into the price of each length of input.
const steps = (kinds) => {
  const overs = new Set([0, ...Object.values(kinds).flatMap((v) => (typeof v === 'number' ? [] : v.tiers.map((t) => t.start)))]);
  return [...overs].sort((a, b) => a - b).map((over) => ({ over, ...Object.fromEntries(Object.entries(kinds).map(([k, v]) => [k, exact(at(v, over))])) }));
};

const all = await waitForUpdate();
export const priced = all.map((p) => p.id);
export const modelsOf = (provider) => all.find((p) => p.id === provider).models;

// dated is a name without the date that it ends with.
const dated = (name) => name.replace(/(-\d{8}|-\d{4}-\d{2}-\d{2})$/, '');

// means reports whether a rule of the price source is about that name, and not about all names that look like it.
const means = (match, name) => match.equals === name || (match.regex !== undefined && new RegExp(match.regex).test(name)) || (match.or ?? []).some((m) => means(m, name));

// price is what the price source says of a name on a day: {steps, exactly, window, apart} or {refused}, or nothing.
export const price = (provider, name, day, kind) => {
  const found = calcPrice({ input_tokens: 0 }, name, { providerId: provider, timestamp: new Date(day) });
  if (found === null || found.provider.id !== provider) return undefined;
  const { model, model_price: prices } = found;
  const about = { exactly: model.id === name || dated(name) === dated(model.id) || means(model.match, name), window: model.context_window, id: model.id };
  if (Array.isArray(model.prices) && model.prices.some((p) => p.constraint?.type === 'time_of_date')) return { ...about, refused: 'the price depends on the time of day' };
  const kinds = {}, beside = [];
  for (const [key, value] of Object.entries(prices)) {
    if (value === undefined) continue;
    if (tokens[key]) kinds[tokens[key]] = value;
    else if (apart[key]) beside.push(apart[key]);
    else if (!(kind === 'embedding' && notInText[key])) return { ...about, refused: `the price has ${key}` };
  }
  if (kind === 'embedding') delete kinds.output;
  if (kinds.input === undefined || (kind === 'chat' && kinds.output === undefined)) return { ...about, refused: 'the price is missing' };
  return { ...about, steps: steps(kinds), apart: beside };
};

const costs = { input: 'input', output: 'output', cacheRead: 'cached_input', cacheWrite: 'written_input' };

// cost is a price of the checking source, in which 0 stands for what it does not know, and a cache that is cheaper to write
// than input is for the storage alone.
const cost = (c, free) => {
  const known = (from, k) => free || (from[k] > 0 && (k !== 'cacheWrite' || from[k] >= from.input));
  const one = (from, over) => ({ over, ...Object.fromEntries(Object.entries(costs).filter(([k]) => known(from, k)).map(([k, to]) => [to, exact(from[k])])) });
  return [one(c, 0), ...(c.tiers ?? []).map((t) => one(t, t.inputTokensAbove)).sort((x, y) => x.over - y.over)];
};

// chats are the chat models that the checking source has of a provider: name to {steps, window, output}.
export const chats = (provider) => {
  const groups = json(`${names.check}/dist/providers/data/${provider}.json`);
  const rows = Object.values(groups).flatMap((g) => Object.values(g)).filter((m) => m.type === 'chat');
  return new Map(rows.map((m) => [m.id, { steps: cost(m.cost, m.id.endsWith(':free')), window: m.contextWindow, output: m.maxTokens }]));
};
