import { setTimeout as sleep } from "node:timers/promises";
import { errorFrom, NameserviceError, NotYet, OutcomeUnknown, Unavailable } from "./errors.js";
import { parse } from "./json.js";

export type Fetch = (request: Request) => Promise<Response>;

/** Statuses that may be transient: too many requests, and failures of the service or of something in front of it. */
export const TEMPORARY = new Set([429, 500, 502, 503, 504]);

const OUTCOME_UNKNOWN = "https://nameservice.dev/problems/outcome-unknown";

/** A service as it is reached: without a slash at the end of its URL, and without credentials in it. */
export interface Place {
  url: string;
  /** The header that names the caller, if there is one. */
  authorization: string | undefined;
}

/**
 * Reads the URL of a service, and the token. Throws a `TypeError` for what cannot be used, without showing a token or a password.
 * The user of a URL is sent if there is no token.
 */
export function placeOf(text: string, token: string | undefined): Place {
  // Without what precedes the last @, as a password that is not escaped may have any character, and without the query.
  const shown = text.replace(/^([a-z][a-z0-9+.-]*:\/\/)?.*@/is, "$1").replace(/[?#].*/s, "");
  const unusable = (reason: string) => new TypeError(`\`${shown}\` cannot be used as a URL: ${reason}`);
  if (!/^https?:\/\//i.test(text)) throw unusable("it must begin with http:// or https://");
  if (!URL.canParse(text)) throw unusable("it is no URL");
  const url = new URL(text);
  if (url.search || url.hash) throw unusable("it must not have a query or a fragment");
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) throw new TypeError("the token contains characters that cannot be sent");
  let authorization = token === undefined ? undefined : `Bearer ${token}`;
  if (url.username || url.password) {
    const user = Buffer.from(`${unescaped(url.username)}:${unescaped(url.password)}`).toString("base64");
    authorization ??= `Basic ${user}`;
    url.username = url.password = "";
  }
  return { url: url.href.replace(/\/+$/, ""), authorization };
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Whether the service has decided on the write after it looked for its key: had an earlier attempt been applied, it would have answered
 * as at first. What is answered before (a token, the size of a body) proves nothing about that attempt. Neither does a record that is
 * gone, retracted, or of another kind, nor a conflict that shows no value: the record that remembered the attempt may have been purged
 * since. A lease may have ended after the attempt, and items of a transaction may have forgotten it.
 */
function isDecision(error: NameserviceError): boolean {
  if (error.kind === "conflict" && (error.problem["actual"] ?? null) === null) return false;
  const forgetful = ["", "retracted", "wrong-kind", "lease-lost", "transaction-refused"];
  return !forgetful.includes(error.kind) && [409, 410, 422].includes(error.status);
}

/** Milliseconds to wait before the next attempt: 50, 100, 200, … and at most two seconds, of which a random half may be left out. */
export function backoff(attempt: number): number {
  return (1 - Math.random() / 2) * Math.min(2000, 50 * 2 ** Math.min(attempt, 10));
}

export interface Repetition {
  place: Place;
  /** How many seconds a call may take with all its attempts; 0 for one attempt. */
  deadline: number;
  /** How many seconds one attempt may take, its answer included. */
  timeout: number;
}

/**
 * Wraps `fetch` so that writes carry an `Idempotency-Key`, temporary failures are repeated under it until the deadline has passed, and
 * every rejection is an error. A write whose outcome stays unknown is an `OutcomeUnknown`.
 */
export function repeating(send: Fetch, { place, deadline, timeout }: Repetition): Fetch {
  return async (given) => {
    const url = new URL(given.url);
    const reads = given.method === "GET" || url.pathname.endsWith("/v1/changes/compare");
    // Fluree's routes take no keys, so their writes are sent once.
    const takesKey = !reads && !given.url.startsWith(`${place.url}/fluree/`);
    const once = deadline === 0 || !(reads || takesKey);
    // A redirection could turn a write into a read, and names another service than the one that was given.
    const request = new Request(given, { redirect: "manual" });
    if (place.authorization) request.headers.set("authorization", place.authorization);
    if (takesKey && !request.headers.has("idempotency-key")) request.headers.set("idempotency-key", crypto.randomUUID());
    const key = request.headers.get("idempotency-key");
    // What the service is asked to wait is added.
    const wait = Number(url.searchParams.get("wait") ?? 0) || 0;
    const longest = (once ? timeout : Math.min(timeout, deadline / 2)) + wait;
    const until = performance.now() + ((once ? timeout : deadline) + wait) * 1000;
    let unknown = false;
    let last: NameserviceError;
    for (let attempt = 0; ; attempt++) {
      const left = until - performance.now();
      try {
        const response = await attempted(send, request, Math.min(left, longest * 1000));
        if (response.ok || response.status === 304) return response;
        last = await errorFrom(response);
        if (!TEMPORARY.has(response.status) || last instanceof NotYet) {
          if (unknown && !isDecision(last)) break;
          throw last;
        }
        // Certainly not written. After anything else, such as the 502 of a gateway, the outcome is unknown.
        unknown ||= !reads && response.status !== 429 && last.kind !== "unavailable";
      } catch (cause) {
        if (request.signal.aborted || cause instanceof NameserviceError) throw cause;
        unknown ||= !reads && !wasNotSent(cause);
        last = new Unavailable(0, { detail: `${request.url} cannot be reached: ${reasonOf(cause)}` }, { cause });
      }
      const delay = backoff(attempt);
      if (once || performance.now() + delay >= until) break;
      await sleep(delay, undefined, { signal: request.signal });
    }
    if (!unknown) throw last;
    const detail = last instanceof OutcomeUnknown ? last.message : `the outcome is unknown: ${last.message}`;
    throw new OutcomeUnknown(last.status, { ...last.problem, type: OUTCOME_UNKNOWN, detail, idempotency_key: key }, { cause: last });
  };
}

/** Sends a request once, and reads its answer to the end within this time. */
async function attempted(send: Fetch, request: Request, milliseconds: number): Promise<Response> {
  const limit = new AbortController();
  const late = () => limit.abort(new Error(`no answer within ${Math.round(milliseconds)} ms`));
  const timer = setTimeout(late, Math.max(0, milliseconds));
  // A clone for each attempt: the body of a request can be read once.
  const sent = new Request(request.clone(), { signal: AbortSignal.any([request.signal, limit.signal]) });
  try {
    return await whole(await send(sent));
  } finally {
    clearTimeout(timer);
  }
}

/** Reads an answer to its end: one that breaks off is a lost answer. No number of it is changed. A stream of events stays one. */
async function whole(response: Response): Promise<Response> {
  const type = response.headers.get("content-type") ?? "";
  if (type.startsWith("text/event-stream")) return response;
  const bytes = new Uint8Array(await response.arrayBuffer());
  const { status, statusText } = response;
  const headers = new Headers(response.headers);
  headers.delete("content-encoding");
  // Only of an answer with a length does openapi-fetch call `json`.
  headers.set("content-length", String(bytes.length));
  const read = new Response(bytes.length === 0 ? null : bytes, { status, statusText, headers });
  if (!response.ok || bytes.length === 0) return read;
  let json: () => Promise<unknown>;
  if (type.includes("json")) {
    // An answer without a length breaks off without an error. Its JSON is not complete then, which is a lost answer, too.
    const value = parse(new TextDecoder().decode(bytes));
    json = () => Promise.resolve(value);
  } else {
    json = () => Promise.reject(new NameserviceError(status, { detail: `the answer of ${response.url || "the service"} is no JSON: is it a nameservice?` }));
  }
  return Object.defineProperty(read, "json", { value: json });
}

interface Cause {
  message?: string;
  code?: string;
  syscall?: string;
  cause?: Cause;
  errors?: Cause[];
}

/** What a failure of `fetch` was caused by. */
function reasonOf(error: unknown): string {
  const { cause, message, code } = error as Cause;
  const reason = cause?.message || cause?.code || message || code || "no answer";
  // The other clients read it. Of Node, `fetch` can be given no authorities.
  const options = [...process.execArgv, process.env["NODE_OPTIONS"] ?? ""].join(" ");
  const isUnread = process.env["SSL_CERT_FILE"] && !options.includes("--use-openssl-ca") && /SELF_SIGNED|UNABLE_TO/.test(cause?.code ?? "");
  return isUnread ? `${reason} (Node does not read SSL_CERT_FILE: name the file in NODE_EXTRA_CA_CERTS, too)` : reason;
}

/** Whether there was no connection, so that nothing was sent. */
function wasNotSent(error: unknown): boolean {
  const { cause } = error as Cause;
  if (!cause) return false;
  const isOfConnecting = ({ code = "", syscall = "" }: Cause) =>
    ["connect", "getaddrinfo"].includes(syscall) || ["ECONNREFUSED", "ENOTFOUND", "UND_ERR_CONNECT_TIMEOUT"].includes(code) || /CERT|SIGNATURE/.test(code);
  // Several addresses of a host, none of which answers.
  return isOfConnecting(cause) || (Array.isArray(cause.errors) && cause.errors.length > 0 && cause.errors.every(isOfConnecting));
}
