import { setTimeout as sleep } from "node:timers/promises";
import { errorFrom, NotYet, OutcomeUnknown, Unavailable, type NameserviceError } from "./errors.js";

type Fetch = (request: Request) => Promise<Response>;

/** Statuses that may be transient: too many requests, and failures of the service or of something in front of it. */
export const TEMPORARY = new Set([429, 500, 502, 503, 504]);

/** Milliseconds to wait before the next attempt: up to twice as long each time, ten seconds at most. */
export function backoff(attempt: number): number {
  return Math.random() * Math.min(10_000, 100 * 2 ** attempt);
}

/**
 * Wraps `fetch` so that writes carry an `Idempotency-Key`, temporary failures are repeated under it, and every rejection is an error.
 * A write whose outcome stays unknown is an `OutcomeUnknown`.
 */
export function repeating(send: Fetch, attempts: number, token: string | undefined): Fetch {
  return async (given) => {
    const reads = given.method === "GET" || new URL(given.url).pathname.endsWith("/v1/changes/compare");
    // Fluree's routes take no keys, so their writes are sent once.
    const once = !reads && given.url.includes("/fluree/");
    const request = new Request(given);
    if (token) request.headers.set("authorization", `Bearer ${token}`);
    if (!reads && !once && !request.headers.has("idempotency-key")) request.headers.set("idempotency-key", crypto.randomUUID());
    let unknown = false;
    let last: NameserviceError = new Unavailable(0, { detail: "no request was sent" });
    for (let attempt = 0; attempt < (once ? 1 : attempts); attempt++) {
      if (attempt > 0) await sleep(backoff(attempt), undefined, { signal: request.signal });
      let response: Response;
      try {
        response = await send(request.clone());
      } catch (cause) {
        if (request.signal.aborted) throw cause;
        // Without a connection, nothing was sent.
        unknown ||= !reads && !isRejected(cause);
        last = new Unavailable(0, { detail: `${request.url} cannot be reached` }, { cause });
        continue;
      }
      if (response.ok || response.status === 304) return response;
      last = await errorFrom(response);
      if (!TEMPORARY.has(response.status) || last instanceof NotYet) throw last;
      // Certainly not written. After anything else, such as the 502 of a gateway, the outcome is unknown.
      unknown ||= !reads && response.status !== 429 && last.kind !== "unavailable";
    }
    if (unknown && !(last instanceof OutcomeUnknown)) {
      throw new OutcomeUnknown(last.status, { ...last.problem, detail: `the outcome is unknown: ${last.message}` }, { cause: last });
    }
    throw last;
  };
}

function isRejected(error: unknown): boolean {
  const cause = error instanceof Error ? (error.cause as { code?: string } | undefined) : undefined;
  return cause?.code === "ECONNREFUSED" || cause?.code === "ENOTFOUND";
}
