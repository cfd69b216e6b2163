// Verifies a certificate with a JOSE library that shares nothing with the server:
//   node verify.mjs CERT JWKS
// CERT is a file, JWKS a file or a URL. It says OK and the key that signed, or fails and says why.
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { compactVerify, createLocalJWKSet } from 'jose';

const number = randomUUID(); // a name that no document has

// exact parses JSON with numbers as they are spelled: as floats, different ones would be equal.
function exact(text) {
  JSON.parse(text); // or it is no JSON
  return JSON.parse(text.replace(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g, (token) => (token[0] === '"' ? token : JSON.stringify({ [number]: token }))));
}

async function keys(from) {
  if (!/^https?:/.test(from)) return readFile(from, 'utf8');
  const response = await fetch(from);
  if (!response.ok) throw new Error(`${from} answers ${response.status}`);
  return response.text();
}

async function verify(certificate, from) {
  const { signature, ...shown } = exact(await readFile(certificate, 'utf8'));
  const voided = shown.voided === true;
  for (const name of Object.keys(shown)) if (name.startsWith('voided')) delete shown[name];

  const { payload, protectedHeader } = await compactVerify(signature.jws, createLocalJWKSet(JSON.parse(await keys(from))), { algorithms: ['EdDSA'] });
  const signed = exact(new TextDecoder('utf-8', { fatal: true }).decode(payload));
  if (!isDeepStrictEqual(signed, shown)) throw new Error('what it shows differs from what was signed');
  const by = { alg: protectedHeader.alg, key_id: protectedHeader.kid, jws: signature.jws };
  if (!isDeepStrictEqual(by, { ...signature })) throw new Error('its signature says something else of itself');
  const last = signature.jws.split('.')[2];
  if (Buffer.from(last, 'base64url').toString('base64url') !== last) throw new Error('its signature is not in its one spelling');
  return `OK ${protectedHeader.kid}${voided ? ', voided' : ''}`;
}

try {
  console.log(await verify(process.argv[2], process.argv[3]));
} catch (err) {
  console.error(`${err.code ?? 'failed'}: ${err.message}`);
  process.exitCode = 1;
}
