// Requests to the public API, with the user's token. Nothing else of the console talks to the service.

import { parse, stringify } from './json.js';
import { bearer } from './session.js';

/** The URL of the service: two levels above this file, whatever precedes it in the path. */
const BASE = new URL('../v1/', import.meta.url);

/** A rejection of the service (RFC 9457), or a failure to reach it. */
export class Problem extends Error {
  constructor(status, document, sent) {
    super(document.detail || document.title || `status ${status}`);
    this.status = status;
    this.document = document;
    this.title = document.title || 'The request failed';
    this.type = String(document.type || '').split('/').pop();
    this.sent = sent;
  }

  /** Whether the write may have been applied all the same. */
  get isOutcomeUnknown() {
    return this.type === 'outcome-unknown' || (this.sent && (this.status === 0 || (this.status >= 500 && !this.type)));
  }
}

/** An address as the end of a path. Its slashes stay. */
export const inPath = (address) => address.split('/').map(encodeURIComponent).join('/');

/** A name for a write, so that it can be sent again without being applied twice. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Sends a request and returns the response, or throws a `Problem`. */
export async function send(method, path, { body, key, headers = {}, signal } = {}) {
  const token = await bearer();
  const options = { body, key, headers, signal };
  const response = await sent(method, path, token, options);
  if (response.status !== 401 || !token) return answered(response, method);
  // Rejected before anything was done. A new token of the provider may be accepted.
  const another = await bearer(token);
  return answered(another === token ? response : await sent(method, path, another, options), method);
}

async function sent(method, path, token, { body, key, headers, signal }) {
  const all = { accept: 'application/json', ...headers };
  if (token) all.authorization = `Bearer ${token}`;
  if (body !== undefined) all['content-type'] = 'application/json';
  if (key) all['idempotency-key'] = key;
  try {
    return await fetch(new URL(path, BASE), {
      method,
      headers: all,
      body: body === undefined ? undefined : stringify(body),
      signal,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, { title: 'No answer', detail: 'The service cannot be reached.' }, method !== 'GET');
  }
}

async function answered(response, method) {
  if (response.ok) return response;
  const document = await response.text().then(parse).catch(() => ({}));
  throw new Problem(response.status, document && typeof document === 'object' ? document : {}, method !== 'GET');
}

/** Sends a request and returns the JSON of its answer; null if there is none. */
export async function call(method, path, options) {
  const response = await send(method, path, options);
  if (response.status === 204) return null;
  try {
    return parse(await response.text());
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, { title: 'No answer', detail: 'The answer was cut off.' }, method !== 'GET');
  }
}

export const getRecord = (address, options) => call('GET', `records/${inPath(address)}`, options);
