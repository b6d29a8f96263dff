/** The change feed as it grows. */
import { setTimeout as sleep } from "node:timers/promises";
import { createParser } from "eventsource-parser";
import { errorFrom, errorOf, NameserviceError, PositionExpired, type Problem } from "./errors.js";
import { parse } from "./json.js";
import type { components, operations } from "./schema.js";
import { backoff, TEMPORARY, type Fetch, type Place } from "./transport.js";

type Schemas = components["schemas"];
export type Change = Schemas["Change"];

/** A place in the feed: the cursor that the service names, `TIMELINE:POSITION`, or a position of its present history. */
export type FeedPlace = string | number;

const PLACE = /^(?:[0-9a-f]{16}:)?\d+$/;

export type EventOptions = Omit<NonNullable<operations["change_stream"]["parameters"]["query"]>, "after"> & {
  /** The place up to which everything is known. */
  after?: FeedPlace;
  /** Ends the iteration. */
  signal?: AbortSignal;
};

/** A snapshot of records, and where in the feed to continue. */
export interface Snapshot {
  records: Schemas["Record"][];
  position: number;
  /** The place from which to follow what happens to the records. */
  cursor: FeedPlace;
}

/** What `follow` yields: all records that are asked for, or one change. */
export type Followed =
  | {
      kind: "snapshot";
      records: Schemas["Record"][];
      /** Where to continue. */
      cursor: FeedPlace;
      /** Why it begins again: the feed no longer holds what followed (`trimmed`), or is another one (`other-history`, `ahead`). */
      reason: string | null;
    }
  | {
      kind: "change";
      change: Change;
      /** Keep it once the change is handled, to continue from there. */
      cursor: FeedPlace;
    };

export interface Streams {
  send: Fetch;
  place: Place;
  /** How many seconds until the headers of a stream are there. */
  timeout: number;
  /** How many seconds a stream may be silent. */
  silence: number;
  /** Reads the present end of the feed. */
  end: (signal: AbortSignal | undefined) => Promise<FeedPlace>;
}

/** Yields changes with the place that each reaches, from one place on, across reconnections. */
export async function* changes(
  streams: Streams,
  { signal, after, ...filters }: EventOptions,
): AsyncGenerator<{ change: Change; cursor: FeedPlace }, void, undefined> {
  if (after !== undefined && !PLACE.test(String(after))) throw new TypeError("after is no cursor, and no position");
  let failures = 0;
  while (!signal?.aborted) {
    try {
      // Requested before the first connection, so that nothing is missed if that breaks.
      after ??= await streams.end(signal);
      for await (const block of blocks(streams, { ...filters, after }, signal)) {
        failures = 0;
        const data = () => parse(block.data ?? "");
        if (block.event === "expired") throw errorOf(410, { ...(data() as Problem), type: "/expired", detail: "the position has expired" });
        if (block.event === "error") {
          const problem = data() as Problem;
          throw errorOf(problem.status ?? 500, problem);
        }
        // The id of any block shows which place the stream has reached, past what the filters leave out.
        if (block.id !== undefined && PLACE.test(block.id)) after = block.id;
        if (block.event === "change") {
          const change = data() as Change & { cursor?: string };
          after = change.cursor ?? block.id ?? change.position;
          yield { change, cursor: after };
          if (signal?.aborted) return;
        }
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (error instanceof NameserviceError && !isTemporary(error)) throw error;
      if (error instanceof SyntaxError) throw error;
      // The connection broke, or the service is not available: reconnect.
    }
    // A stream that ends as every stream does is opened again at once.
    if (failures > 0) await sleep(backoff(failures), undefined, { signal }).catch(() => undefined);
    failures += 1;
  }
}

/** Whether the service was not reached, or has failed in a way that may pass. */
function isTemporary(error: unknown): boolean {
  return error instanceof NameserviceError && (error.status === 0 || TEMPORARY.has(error.status));
}

interface Block {
  event?: string | undefined;
  data?: string;
  id?: string | undefined;
}

/** Yields the blocks of one stream in their order, until it ends. Throws if it breaks or falls silent. */
async function* blocks({ send, place, timeout, silence }: Streams, filters: Record<string, unknown>, signal: AbortSignal | undefined) {
  const url = new URL(`${place.url}/v1/events`);
  for (const [name, value] of Object.entries(filters)) {
    for (const one of Array.isArray(value) ? (value as unknown[]) : [value]) if (one !== undefined) url.searchParams.append(name, String(one));
  }
  const headers: Record<string, string> = { accept: "text/event-stream" };
  if (place.authorization) headers["authorization"] = place.authorization;
  // Leaving the loop closes the connection.
  const closing = new AbortController();
  const both = signal ? AbortSignal.any([signal, closing.signal]) : closing.signal;
  const late = () => closing.abort(new Error("the service has fallen silent"));
  let timer = setTimeout(late, timeout * 1000);
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(late, silence * 1000);
  };
  try {
    const response = await send(new Request(url, { headers, signal: both, redirect: "manual" }));
    if (!response.ok) throw await errorFrom(response);
    if (!response.body || !response.headers.get("content-type")?.startsWith("text/event-stream")) {
      throw new NameserviceError(response.status, { detail: `what ${url.origin} answers is no stream of events` });
    }
    heard();
    let read: Block[] = [];
    // In the order of the stream, so that an id is never taken for reached before what precedes it was yielded.
    const parser = createParser({
      onId: (id) => read.push({ id }),
      onEvent: (event) => {
        const before = read.at(-1);
        if (before && before.event === undefined && before.data === undefined && before.id === event.id) read.pop();
        read.push(event);
      },
    });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      heard();
      parser.feed(next.value);
      const complete = read;
      read = [];
      // While the caller works on what was read, the stream is not silent.
      clearTimeout(timer);
      yield* complete;
      heard();
    }
  } finally {
    clearTimeout(timer);
    closing.abort();
  }
}

/**
 * Yields a snapshot, unless `after` says where to continue, and then what changes. Where the feed does not continue from there, it
 * yields a snapshot again, with the reason, and goes on.
 */
export async function* follow(
  streams: Streams,
  snapshot: () => Promise<Snapshot>,
  { after, ...options }: EventOptions,
): AsyncGenerator<Followed, void, undefined> {
  const { signal } = options;
  let reason: string | null = null;
  for (let vain = 0; !signal?.aborted; vain++) {
    if (vain > 1) await sleep(backoff(vain), undefined, { signal }).catch(() => undefined);
    try {
      if (after === undefined) {
        const { records, cursor } = await snapshot();
        after = cursor;
        yield { kind: "snapshot", records, cursor, reason };
      }
      for await (const { change, cursor } of changes(streams, { ...options, after })) {
        vain = 0;
        yield { kind: "change", change, cursor };
      }
    } catch (error) {
      if (signal?.aborted) return;
      // The service is not available: a snapshot can be read later.
      if (isTemporary(error)) continue;
      if (!(error instanceof PositionExpired)) throw error;
      after = undefined;
      reason = error.reason;
    }
  }
}
