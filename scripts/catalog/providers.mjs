// The providers, by hand: which of our wires reaches each, and where. `prices` and `check` are the names that the two
// sources have for it; `lead: 'check'` takes the checking source's prices. A provider of the price source that stands in neither table stops the script, so that a new one is
// a decision and not an accident.
export const providers = [
  { name: 'anthropic', prices: 'anthropic', check: 'anthropic', kind: 'anthropic', base_url: 'https://api.anthropic.com/v1' },
  { name: 'baseten', prices: 'baseten', check: 'baseten', kind: 'openai', base_url: 'https://inference.baseten.co/v1' },
  { name: 'cerebras', prices: 'cerebras', check: 'cerebras', kind: 'openai', base_url: 'https://api.cerebras.ai/v1' },
  // Our cohere wire has embeddings and reranking; its chat models are left out.
  { name: 'cohere', prices: 'cohere', kind: 'cohere', base_url: 'https://api.cohere.com' },
  { name: 'deepseek', prices: 'deepseek', check: 'deepseek', kind: 'openai', base_url: 'https://api.deepseek.com' },
  { name: 'fireworks', prices: 'fireworks', check: 'fireworks', kind: 'openai', base_url: 'https://api.fireworks.ai/inference/v1' },
  { name: 'google', prices: 'google', check: 'google', kind: 'gemini', base_url: 'https://generativelanguage.googleapis.com/v1beta' },
  { name: 'groq', prices: 'groq', check: 'groq', kind: 'openai', base_url: 'https://api.groq.com/openai/v1' },
  { name: 'minimax', prices: 'minimax', check: 'minimax', kind: 'openai', base_url: 'https://api.minimax.io/v1' },
  { name: 'mistral', prices: 'mistral', check: 'mistral', kind: 'openai', base_url: 'https://api.mistral.ai/v1' },
  { name: 'moonshotai', prices: 'moonshotai', check: 'moonshotai', kind: 'openai', base_url: 'https://api.moonshot.ai/v1' },
  { name: 'openai', prices: 'openai', check: 'openai', kind: 'openai', base_url: 'https://api.openai.com/v1', responses: 'native', max_tokens_field: 'max_completion_tokens' },
  // Its prices move every week; the checking source reads them from its own list of models.
  { name: 'openrouter', prices: 'openrouter', check: 'openrouter', lead: 'check', kind: 'openai', base_url: 'https://openrouter.ai/api/v1' },
  { name: 'together', prices: 'together', check: 'together', kind: 'openai', base_url: 'https://api.together.xyz/v1' },
  { name: 'xai', prices: 'x-ai', check: 'xai', kind: 'openai', base_url: 'https://api.x.ai/v1', responses: 'native' },
  { name: 'zai', prices: 'zai', check: 'zai', kind: 'openai', base_url: 'https://api.z.ai/api/paas/v4' },
];

const perCustomer = 'the URL is each customer\'s own';
const noOutput = 'no source says how many tokens its chat models may answer with';

export const leftOut = [
  { prices: 'arcee', why: noOutput },
  { prices: 'avian', why: noOutput },
  { prices: 'aws', why: 'requests are signed' },
  { prices: 'azure', why: perCustomer },
  { prices: 'cloudflare', why: perCustomer },
  { prices: 'cursor', why: 'no public API of one of our wires' },
  { prices: 'doubleword', why: noOutput },
  { prices: 'github-copilot', why: 'a subscription, not a price' },
  { prices: /^huggingface_/, why: 'a router: what is charged depends on where a request ends up' },
  { prices: 'modal', why: perCustomer },
  { prices: 'novita', why: noOutput },
  { prices: 'ovhcloud', why: noOutput },
  { prices: 'perplexity', why: 'every model of it is paid for by the request or the search too' },
  { prices: 'quicksilverpro', why: noOutput },
  { prices: 'typesafe', why: 'classifiers' },
  { prices: 'voyageai', why: 'its embeddings are not OpenAI\'s wire' },
  { prices: 'zhipuai', why: noOutput },
];
