// The official Node package, as it is, against BASE_URL with API_KEY. MODELS maps a scenario's name to a model's id, and
// a scenario without a model is left out. PROVIDER_URL is the mock provider that stands behind the models; POOR_API_KEY
// has no money to spend, and is there only when a gateway stands between.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI from 'openai';
import { makeParseableResponseFormat, makeParseableTextFormat } from 'openai/lib/parser';

const { BASE_URL, API_KEY, POOR_API_KEY, PROVIDER_URL } = process.env;
const models = JSON.parse(process.env.MODELS);
const gateway = Boolean(POOR_API_KEY);
const answer = 'every request is held before';

let calls = 0;
const counted = (...args) => {
  calls++;
  return fetch(...args);
};
const connect = (options) => new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY, maxRetries: 0, timeout: 120_000, fetch: counted, ...options });
const client = connect();

// ask is a question of three words that nobody has asked before.
function ask(name, more) {
  const nonce = randomUUID();
  return { nonce, body: { model: models[name], messages: [{ role: 'user', content: `one two ${nonce}` }], ...more } };
}

// scenario runs once for each of the models that are there.
function scenario(what, names, run) {
  for (const name of names.filter((name) => models[name])) test(`${what}: ${name}`, () => run(name));
}

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const text = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');

async function requests(nonce) {
  const all = await (await fetch(`${PROVIDER_URL}/log`)).json();
  return all.filter((request) => request.body.includes(nonce));
}

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail('it did not fail');
}

test('models are listed and found, with a slash in the id', async () => {
  const ids = [];
  for await (const model of client.models.list()) {
    assert.equal(model.object, 'model');
    assert.ok(Number.isInteger(model.created) && model.owned_by);
    ids.push(model.id);
  }
  assert.ok(ids.includes(models.listed), String(ids));
  assert.equal((await client.models.retrieve(models.listed)).id, models.listed);
});

scenario('chat', ['chat', 'sim_chat'], async (name) => {
  const completion = await client.chat.completions.create(ask(name).body);
  const [choice] = completion.choices;
  assert.equal(completion.object, 'chat.completion');
  assert.equal(choice.message.role, 'assistant');
  assert.equal(choice.finish_reason, 'stop');
  assert.ok(choice.message.content);
  assert.ok(completion.usage.prompt_tokens > 0 && completion.usage.completion_tokens > 0);
  assert.equal(completion.usage.total_tokens, completion.usage.prompt_tokens + completion.usage.completion_tokens);
  if (name === 'chat') {
    assert.equal(choice.message.content, answer);
    assert.equal(completion.usage.prompt_tokens, 3);
    assert.equal(completion.usage.completion_tokens, 5);
  }
});

scenario('a stream without usage shows none', ['chat', 'sim_chat', 'odd', 'plain', 'unasked', 'inline'], async (name) => {
  const chunks = await collect(await client.chat.completions.create(ask(name, { stream: true }).body));
  for (const chunk of chunks) {
    assert.equal(chunk.choices.length, 1, JSON.stringify(chunk));
    assert.equal(chunk.usage ?? null, null, JSON.stringify(chunk));
    assert.equal(chunk.id, chunks[0].id);
    assert.equal(chunk.model, chunks[0].model);
    assert.equal(chunk.created, chunks[0].created);
  }
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'stop');
  assert.ok(text(chunks));
  if (name !== 'sim_chat') assert.equal(text(chunks), answer);
});

scenario('a stream with usage ends with it', ['chat', 'sim_chat', 'odd'], async (name) => {
  const { body } = ask(name, { stream: true, stream_options: { include_usage: true } });
  const chunks = await collect(await client.chat.completions.create(body));
  const last = chunks.pop();
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.total_tokens, last.usage.prompt_tokens + last.usage.completion_tokens);
  assert.ok(last.usage.completion_tokens > 0);
  for (const chunk of chunks) {
    assert.equal(chunk.choices.length, 1);
    assert.equal(chunk.usage, null);
  }
  if (name !== 'sim_chat') assert.equal(last.usage.completion_tokens, 5);
});

scenario('the stream helper adds up', ['chat', 'sim_chat', 'odd'], async (name) => {
  const { body } = ask(name, { stream_options: { include_usage: true } });
  const stream = client.chat.completions.stream(body);
  let heard = '';
  stream.on('content', (delta) => (heard += delta));
  const completion = await stream.finalChatCompletion();
  assert.equal(completion.choices[0].message.content, heard);
  assert.ok(heard);
  assert.equal(completion.choices[0].finish_reason, 'stop');
  assert.ok((await stream.totalUsage()).completion_tokens > 0);
  if (name !== 'sim_chat') assert.equal(heard, answer);
});

const schema = { type: 'object', properties: { city: { type: 'string', enum: ['Ulm'] } }, required: ['city'], additionalProperties: false };
const tools = ['today', 'tomorrow'].map((name) => ({ type: 'function', function: { name, strict: true, parameters: schema } }));

scenario('tools are called in parallel', ['tools'], async (name) => {
  const expected = [['today', '{"city":"Ulm"}'], ['tomorrow', '{"city":"Ulm"}']];
  const named = (calls) => calls.map((call) => [call.function.name, call.function.arguments]);
  const whole = await client.chat.completions.create(ask(name, { tools }).body);
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  assert.equal(whole.choices[0].message.content, null);
  assert.deepEqual(named(whole.choices[0].message.tool_calls), expected);
  assert.equal(new Set(whole.choices[0].message.tool_calls.map((call) => call.id)).size, 2);

  const byIndex = [];
  for await (const chunk of await client.chat.completions.create(ask(name, { tools, stream: true }).body)) {
    for (const call of chunk.choices[0].delta.tool_calls ?? []) {
      if (byIndex[call.index]) {
        assert.equal(call.id, undefined);
        byIndex[call.index].function.arguments += call.function.arguments;
      } else {
        assert.ok(call.id && call.type === 'function' && call.function.arguments === '');
        byIndex[call.index] = call;
      }
    }
  }
  assert.deepEqual(named(byIndex), expected);

  const added = await client.chat.completions.stream(ask(name, { tools }).body).finalMessage();
  assert.deepEqual(named(added.tool_calls), expected);
});

scenario('the tool runner runs the tools and goes on', ['tools'], async (name) => {
  const ran = [];
  const runnable = tools.map((tool) => ({
    ...tool,
    function: { ...tool.function, parse: JSON.parse, function: ({ city }) => ran.push(`${tool.function.name} ${city}`) && 'rain' },
  }));
  const runner = client.chat.completions.runTools(ask(name, { tools: runnable }).body);
  assert.ok(await runner.finalContent());
  assert.deepEqual(ran, ['today Ulm', 'tomorrow Ulm']);
});

scenario('structured output is parsed', ['structured', 'sim_chat'], async (name) => {
  const format = makeParseableResponseFormat({ type: 'json_schema', json_schema: { name: 'place', strict: true, schema } }, JSON.parse);
  const completion = await client.chat.completions.parse(ask(name, { response_format: format }).body);
  assert.deepEqual(completion.choices[0].message.parsed, { city: 'Ulm' });
  const streamed = await client.chat.completions.stream(ask(name, { response_format: format }).body).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.parsed, { city: 'Ulm' });
});

scenario('reasoning is beside the answer', ['reasoning'], async (name) => {
  const completion = await client.chat.completions.create(ask(name).body);
  assert.equal(completion.choices[0].message.reasoning_content, 'every request');
  assert.equal(completion.usage.completion_tokens_details.reasoning_tokens, 2);
  const chunks = await collect(await client.chat.completions.create(ask(name, { stream: true }).body));
  assert.equal(chunks.map((chunk) => chunk.choices[0].delta.reasoning_content ?? '').join(''), 'every request');
});

// respond is ask, for the Responses API.
function respond(name, more) {
  const nonce = randomUUID();
  return { nonce, body: { model: models[name], input: `one two ${nonce}`, ...more } };
}

scenario('a response', ['chat', 'sim_chat'], async (name) => {
  const response = await client.responses.create(respond(name, { instructions: 'Be brief.' }).body);
  assert.equal(response.object, 'response');
  assert.equal(response.status, 'completed');
  assert.ok(response.output_text);
  assert.ok(response.usage.input_tokens > 0 && response.usage.output_tokens > 0);
  assert.equal(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens);
  if (name === 'chat') assert.equal(response.output_text, answer);
});

scenario('the response stream helper adds up', ['chat', 'sim_chat', 'odd'], async (name) => {
  const stream = client.responses.stream(respond(name).body);
  const events = [];
  let heard = '';
  stream.on('event', (event) => events.push(event));
  stream.on('response.output_text.delta', (event) => (heard += event.delta));
  const response = await stream.finalResponse();
  assert.ok(heard);
  assert.equal(response.output_text, heard);
  assert.equal(response.status, 'completed');
  assert.ok(response.usage.output_tokens > 0);
  assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, i) => i));
  assert.deepEqual(events.slice(0, 2).map((event) => event.type), ['response.created', 'response.in_progress']);
  assert.equal(events.at(-1).type, 'response.completed');
  assert.ok(events.filter((event) => event.response).every((event) => event.response.id === response.id));
  const item = response.output.find((item) => item.type === 'message');
  assert.ok(events.filter((event) => event.type === 'response.output_text.delta').every((event) => event.item_id === item.id && Array.isArray(event.logprobs)));
  if (name !== 'sim_chat') assert.equal(heard, answer);
});

const functions = ['today', 'tomorrow'].map((name) => ({ type: 'function', name, strict: true, parameters: schema }));

scenario('a response calls functions, and goes on with what they say', ['tools'], async (name) => {
  const expected = [['today', '{"city":"Ulm"}'], ['tomorrow', '{"city":"Ulm"}']];
  const called = (response) => response.output.filter((item) => item.type === 'function_call');
  const named = (response) => called(response).map((call) => [call.name, call.arguments]);
  const { body } = respond(name, { tools: functions });
  const whole = await client.responses.create(body);
  assert.deepEqual(named(whole), expected);
  assert.equal(new Set(called(whole).map((call) => call.call_id)).size, 2);
  const done = [];
  const stream = client.responses.stream(body);
  stream.on('response.function_call_arguments.done', (event) => done.push([event.name, event.arguments]));
  const response = await stream.finalResponse();
  assert.deepEqual(named(response), expected);
  assert.deepEqual(done, expected);
  const results = called(whole).map((call) => ({ type: 'function_call_output', call_id: call.call_id, output: 'rain' }));
  const next = await client.responses.create({ ...body, input: [{ role: 'user', content: body.input }, ...whole.output, ...results] });
  assert.ok(next.output_text);
});

scenario('a response of a given form is parsed', ['structured', 'sim_chat'], async (name) => {
  const format = makeParseableTextFormat({ type: 'json_schema', name: 'place', strict: true, schema }, JSON.parse);
  const response = await client.responses.parse(respond(name, { text: { format } }).body);
  assert.deepEqual(response.output_parsed, { city: 'Ulm' });
  const streamed = await client.responses.stream(respond(name, { text: { format } }).body).finalResponse();
  assert.deepEqual(streamed.output_parsed, { city: 'Ulm' });
});

scenario('a response that breaks off is an error', ['broken', 'dies'], async (name) => {
  const error = await failure(client.responses.stream(respond(name).body).finalResponse());
  assert.ok(error instanceof Error, String(error));
});

scenario('embeddings are the same in both encodings', ['embedding', 'sim_embedding', 'numbers', 'packed'], async (name) => {
  const input = ['one two', 'three'];
  const packed = await client.embeddings.create({ model: models[name], input });
  const floats = await client.embeddings.create({ model: models[name], input, encoding_format: 'float' });
  assert.equal(packed.data.length, 2);
  assert.ok(packed.usage.prompt_tokens > 0);
  for (const [i, { index, embedding }] of floats.data.entries()) {
    assert.equal(index, i);
    assert.ok(embedding.length > 0);
    assert.deepEqual(Array.from(packed.data[i].embedding), embedding.map(Math.fround));
  }
});

test('refusals are the right errors', async () => {
  const chat = (name, more, options) => failure(connect(options).chat.completions.create(ask(name, more).body));
  const key = await chat('chat', {}, { apiKey: 'sk_sovereign_wrong' });
  assert.ok(key instanceof OpenAI.AuthenticationError, String(key));
  assert.equal(key.code, 'invalid_api_key');
  const model = await chat('chat', { model: 'nothing' });
  assert.ok(model instanceof OpenAI.NotFoundError, String(model));
  assert.equal(model.code, 'model_not_found');
  const parameter = await chat('chat', { max_completion_tokens: -1 });
  assert.ok(parameter instanceof OpenAI.BadRequestError, String(parameter));
  assert.equal(parameter.type, 'invalid_request_error');
  assert.match(parameter.message, /max_completion_tokens/);
  const limited = await chat('limited');
  assert.ok(limited instanceof OpenAI.RateLimitError, String(limited));
  assert.equal(limited.type, 'rate_limit_error');
  assert.equal(limited.headers.get('retry-after'), '7');
  const early = await chat('limited', { stream: true });
  assert.ok(early instanceof OpenAI.RateLimitError, String(early));
  for (const error of [key, model, parameter, limited]) assert.ok(error.requestID, String(error));
  if (gateway) {
    const poor = await chat('chat', {}, { apiKey: POOR_API_KEY });
    assert.equal(poor.status, 402, String(poor));
    assert.equal(poor.code, 'insufficient_balance');
    assert.equal(poor.type, 'insufficient_quota');
  }
});

// The package retries twice by default, and so does the gateway: together they must not try nine times.
scenario('a failure of the provider is tried three times by default, and a refusal once', ['down', 'locked'], async (name) => {
  calls = 0;
  const { nonce, body } = ask(name);
  const error = await failure(connect({ maxRetries: undefined }).chat.completions.create(body));
  const tries = name === 'down' ? 3 : 1;
  assert.equal(calls, gateway ? 1 : tries);
  assert.equal((await requests(nonce)).length, tries);
  if (gateway) {
    assert.ok(error instanceof OpenAI.InternalServerError, String(error));
    assert.equal(error.status, 502);
    assert.equal(error.type, 'upstream_error');
    assert.ok(error.message.includes(error.requestID), error.message);
  }
});

scenario('retry-after is obeyed, and the answer comes in the end', ['flaky'], async (name) => {
  calls = 0;
  const { nonce, body } = ask(name);
  const began = performance.now();
  const completion = await connect({ maxRetries: 5 }).chat.completions.create(body);
  assert.ok(completion.choices[0].message.content);
  assert.ok(calls > 1, 'nothing was tried again');
  assert.ok(performance.now() - began > (calls - 1) * 990, `${calls} calls too soon after each other`);
  const seen = await requests(nonce);
  assert.deepEqual(seen.map((request) => request.status), [429, 429, 429, 200]);
});

scenario('x-should-retry is obeyed', ['final'], async (name) => {
  calls = 0;
  await failure(connect({ maxRetries: 2 }).chat.completions.create(ask(name).body));
  assert.equal(calls, 1);
});

scenario('an error in the middle of a stream is raised', ['broken', 'dies', 'ends'], async (name) => {
  const stream = await client.chat.completions.create(ask(name, { stream: true }).body);
  let heard = '';
  const error = await failure(
    (async () => {
      for await (const chunk of stream) heard += chunk.choices[0].delta.content ?? '';
    })(),
  );
  assert.ok(error instanceof OpenAI.APIError, String(error));
  assert.ok(error.type && error.message, String(error));
  assert.equal(heard, 'every request ');
});

test('request ids are seen', async () => {
  const ids = [
    (await client.models.list().withResponse()).request_id,
    (await client.chat.completions.create(ask('chat').body))._request_id,
    (await client.embeddings.create({ model: models.embedding, input: 'one' }))._request_id,
  ];
  const { data, request_id: streamed } = await client.chat.completions.create(ask('chat', { stream: true }).body).withResponse();
  await collect(data);
  ids.push(streamed);
  for (const id of ids) assert.match(id ?? '', gateway ? /^req_/ : /^provider-/);
  assert.equal(new Set(ids).size, ids.length);
});

scenario('an aborted stream is cancelled at the provider', ['slow'], async (name) => {
  const { nonce, body } = ask(name, { stream: true });
  const stream = await client.chat.completions.create(body);
  let heard = 0;
  for await (const chunk of stream) if (chunk.choices[0].delta.content && ++heard === 3) stream.controller.abort();
  const left = Date.now();
  let request;
  do {
    assert.ok(Date.now() - left < 120_000, `the provider goes on: ${JSON.stringify(request)}`);
    await sleep(20);
    [request] = await requests(nonce);
  } while (!request?.cancelled_at);
  assert.ok(!request.finished && request.chunks_sent >= 2 && request.chunks_sent <= 103, JSON.stringify(request));
});
