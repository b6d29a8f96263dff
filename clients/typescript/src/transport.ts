import { setTimeout as sleep } from "node:timers/promises";
import { errorFrom, NotYet, OutcomeUnknown, Unavailable, type NameserviceError } from "./errors.js";
import { parse } from "./json.js";

type Fetch = (request: Request) => Promise<Response>;

/** Statuses that may be transient: too many requests, and failures of the service or of something in front of it. */
export const TEMPORARY = new Set([429, 500, 502, 503, 504]);

const OUTCOME_UNKNOWN = "https://nameservice.dev/problems/outcome-unknown";

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

/** Milliseconds to wait before the next attempt: up to twice as long each time, ten seconds at most. */
export function backoff(attempt: number): number {
  return Math.random() * Math.min(10_000, 100 * 2 ** attempt);
}

export interface Repetition {
  /** The service's URL, without a slash at its end. */
  base: string;
  /** The maximum number of attempts. */
  attempts: number;
  /** How many seconds one attempt may take, its answer included. */
  timeout: number;
  token: string | undefined;
}

/**
 * Wraps `fetch` so that writes carry an `Idempotency-Key`, temporary failures are repeated under it, and every rejection is an error.
 * A write whose outcome stays unknown is an `OutcomeUnknown`.
 */
export function repeating(send: Fetch, { base, attempts, timeout, token }: Repetition): Fetch {
  return async (given) => {
    const reads = given.method === "GET" || new URL(given.url).pathname.endsWith("/v1/changes/compare");
    // Fluree's routes take no keys, so their writes are sent once. A request's URL is normalized, the base as it was given.
    const once = !reads && given.url.startsWith(`${new URL(base).href.replace(/\/+$/, "")}/fluree/`);
    const request = new Request(given);
    if (token) request.headers.set("authorization", `Bearer ${token}`);
    if (!reads && !once && !request.headers.has("idempotency-key")) request.headers.set("idempotency-key", crypto.randomUUID());
    let unknown = false;
    let last: NameserviceError = new Unavailable(0, { detail: "no request was sent" });
    for (let attempt = 0; attempt < (once ? 1 : attempts); attempt++) {
      if (attempt > 0) await sleep(backoff(attempt), undefined, { signal: request.signal });
      let response: Response;
      try {
        const signal = AbortSignal.any([request.signal, AbortSignal.timeout(timeout * 1000)]);
        response = await whole(await send(new Request(request.clone(), { signal })));
      } catch (cause) {
        if (request.signal.aborted) throw cause;
        // Without a connection, nothing was sent.
        unknown ||= !reads && !isRejected(cause);
        last = new Unavailable(0, { detail: `${request.url} cannot be reached` }, { cause });
        continue;
      }
      if (response.ok || response.status === 304) return response;
      last = await errorFrom(response);
      if (!TEMPORARY.has(response.status) || last instanceof NotYet) {
        if (unknown && !isDecision(last)) break;
        throw last;
      }
      // Certainly not written. After anything else, such as the 502 of a gateway, the outcome is unknown.
      unknown ||= !reads && response.status !== 429 && last.kind !== "unavailable";
    }
    if (unknown && !(last instanceof OutcomeUnknown)) {
      throw new OutcomeUnknown(last.status, { ...last.problem, type: OUTCOME_UNKNOWN, detail: `the outcome is unknown: ${last.message}` }, { cause: last });
    }
    throw last;
  };
}

/** Reads a JSON answer to its end: one that breaks off is a lost answer. No number of it is changed. */
async function whole(response: Response): Promise<Response> {
  if (!response.headers.get("content-type")?.includes("json")) return response;
  const text = await response.text();
  const { status, statusText } = response;
  const headers = new Headers(response.headers);
  headers.delete("content-encoding");
  // Only of an answer with a length does openapi-fetch call `json`.
  headers.set("content-length", String(new TextEncoder().encode(text).length));
  const read = new Response(text === "" ? null : text, { status, statusText, headers });
  return Object.defineProperty(read, "json", { value: () => Promise.resolve(parse(text)) });
}

function isRejected(error: unknown): boolean {
  const cause = error instanceof Error ? (error.cause as { code?: string } | undefined) : undefined;
  return cause?.code === "ECONNREFUSED" || cause?.code === "ENOTFOUND";
}
