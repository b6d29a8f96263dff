/**
 * Client of the nameservice: typed operations, events, leases and conflicts.
 *
 * ```ts
 * const names = new Nameservice();
 * await names.api.POST("/v1/ledgers", { body: { address: "mydb" } });
 * await names.updateHead("mydb", (head) => ({ id: commit, t: head.t + 1 }));
 * for await (const change of names.events({ after: 0, address: ["mydb:*"] })) console.log(change.position, change.concern);
 * ```
 */
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { EventSourceParserStream } from "eventsource-parser/stream";
import createClient, { type Client } from "openapi-fetch";
import { Conflict, errorFrom, errorOf, NameserviceError, LeaseLost, UnknownRecord, type Problem } from "./errors.js";
import { parse, stringify } from "./json.js";
import { Lease, type LeaseOptions } from "./lease.js";
import type { components, operations, paths } from "./schema.js";
import { backoff, repeating, TEMPORARY } from "./transport.js";

export * from "./errors.js";
export { JsonNumber, parse, stringify } from "./json.js";
export { Lease, type LeaseOptions } from "./lease.js";
export type { components, operations, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Change = Schemas["Change"];
export type Head = Schemas["Head"];

export interface NameserviceOptions {
  /** The service's URL; by default NAMESERVICE_URL, else http://127.0.0.1:8080. */
  url?: string;
  /** The bearer token; by default NAMESERVICE_TOKEN. */
  token?: string;
  /** Where event streams are served, if elsewhere (on AWS). */
  eventsUrl?: string;
  /** The maximum number of attempts of a request; 6 by default. */
  attempts?: number;
  /** How many seconds one attempt may take; 35 by default. An event stream may take any time. */
  timeout?: number;
  /** Sends a request, instead of the global `fetch`. */
  fetch?: (request: Request) => Promise<Response>;
}

export type EventOptions = NonNullable<operations["change_stream"]["parameters"]["query"]> & {
  /** Ends the iteration. */
  signal?: AbortSignal;
};

/**
 * A service at a URL.
 *
 * `api` has every operation by its path, typed (openapi-fetch); a rejection throws a `NameserviceError`. Writes carry an
 * `Idempotency-Key` and are repeated under it while their outcome is unknown, so that a lost answer is neither applied twice nor
 * reported as a conflict with itself.
 *
 * No number of a payload is changed: an integer beyond ±(2^53 - 1) is a `bigint`, and any other number that no double equals is a
 * `JsonNumber`. Both are written as they were read; `JSON.stringify` throws on them, `stringify` does not.
 */
export class Nameservice {
  readonly api: Client<paths>;
  readonly #eventsUrl: string;
  readonly #send: (request: Request) => Promise<Response>;
  readonly #token: string | undefined;

  constructor(options: NameserviceOptions = {}) {
    const url = (options.url ?? process.env["NAMESERVICE_URL"] ?? "http://127.0.0.1:8080").replace(/\/+$/, "");
    this.#eventsUrl = (options.eventsUrl ?? url).replace(/\/+$/, "");
    this.#token = options.token ?? process.env["NAMESERVICE_TOKEN"];
    this.#send = options.fetch ?? fetch;
    const { attempts = 6, timeout = 35 } = options;
    const send = repeating(this.#send, { base: url, attempts, timeout, token: this.#token });
    // An address comes last in a path and may contain any character, so it is escaped.
    this.api = createClient<paths>({ baseUrl: url, fetch: send, bodySerializer: stringify });
  }

  /** Returns a record with all its concerns. */
  async record(address: string): Promise<Schemas["Record"]> {
    return given(await this.api.GET("/v1/records/{address}", { params: { path: { address } } }));
  }

  /**
   * Moves a head by compare-and-set, deciding again after each conflict. `decide` gets the stored head (`{ id: null, t: 0 }` where
   * there is no commit yet) and returns the new one, or null to leave it. Returns the head that is stored then. Throws `Conflict`
   * after so many attempts.
   */
  async updateHead(
    address: string,
    decide: (stored: Head) => Schemas["HeadValue"] | null | Promise<Schemas["HeadValue"] | null>,
    options: { lease?: Schemas["Claim"]; attempts?: number } = {},
  ): Promise<Head> {
    let { head } = await this.record(address);
    if (!head) throw new NameserviceError(404, { type: "/wrong-kind", detail: `${address} has no head: it is no ledger` });
    const attempts = options.attempts ?? 10;
    for (let attempt = 1; ; attempt++) {
      const next = await decide(head);
      if (next === null) return head;
      const body = { expected: head, new: next, ...(options.lease ? { lease: options.lease } : {}) };
      try {
        return given(await this.api.PUT("/v1/heads/{address}", { params: { path: { address } }, body })).value;
      } catch (error) {
        if (!(error instanceof Conflict) || attempt >= attempts || error.actual === null) throw error;
        head = error.actual as Head;
      }
    }
  }

  /**
   * Runs `work` under a lease, which is refreshed meanwhile and released after it. Throws `LeaseHeld` if another holder has it, and
   * `LeaseLost` if it was lost before the work was done.
   */
  async withLease<T>(
    address: string,
    name: string,
    options: LeaseOptions,
    work: (lease: Lease) => Promise<T>,
  ): Promise<T> {
    const path = { address };
    const holder = options.holder ?? `${hostname()}-${process.pid}-${crypto.randomUUID().slice(0, 8)}`;
    const take = async (body: Schemas["Wanted"], wait?: number) =>
      given(await this.api.PUT("/v1/leases/{address}", { params: { path, query: wait ? { wait } : {} }, body }));
    const lease = new Lease(take, address, name, holder, options);
    await lease.acquire();
    try {
      const result = await work(lease);
      lease.check();
      return result;
    } finally {
      lease.end();
      const query = { name, holder, token: lease.token };
      await this.api.DELETE("/v1/leases/{address}", { params: { path, query } }).catch((error: unknown) => {
        // Another holder has it, or the record is gone: there is nothing to release.
        if (!(error instanceof LeaseLost || error instanceof UnknownRecord)) throw error;
      });
    }
  }

  /** Returns all records, and the position of the feed from which to follow what happens to them. */
  async snapshot(prefix?: string): Promise<{ records: Schemas["Record"][]; position: number }> {
    const records: Schemas["Record"][] = [];
    let cursor: string | undefined;
    let position: number | undefined;
    do {
      const query = { ...(prefix ? { prefix } : {}), ...(cursor ? { cursor } : {}) };
      const page: Schemas["SnapshotPage"] = given(await this.api.GET("/v1/snapshot", { params: { query } }));
      position ??= page.position;
      records.push(...page.records);
      cursor = page.cursor ?? undefined;
    } while (cursor);
    return { records, position };
  }

  /**
   * Yields changes as they happen, in the order of the feed, each once, across reconnections. `after` is the position up to which
   * everything is known, by default the end of the feed: keep the `position` of each change once it is handled, to continue from
   * there after a restart. Throws `PositionExpired` if the feed no longer holds what follows: begin again with `snapshot`. It does
   * not end on its own.
   */
  async *events({ signal, ...filters }: EventOptions = {}): AsyncGenerator<Change, void, undefined> {
    // Requested before the first connection, so that nothing is missed if that breaks.
    let position = filters.after ?? given(await this.api.GET("/v1/snapshot", { params: { query: { limit: 1 } } })).position;
    for (let failures = 0; !signal?.aborted; failures++) {
      if (failures > 1) await sleep(backoff(failures));
      // Blocks with only an id show the position that the stream has reached, past what the filters leave out.
      let passed = position;
      const seen = (id: string) => {
        if (/^\d+$/.test(id)) passed = Number(id);
      };
      try {
        for await (const event of this.#stream({ ...filters, after: position }, seen, signal)) {
          failures = 0;
          const data = event.event ? parse(event.data) : undefined;
          if (event.event === "expired") throw errorOf(410, { ...(data as Problem), type: "/expired", detail: "the position has expired" });
          if (event.event === "error") throw errorOf((data as Problem).status ?? 500, data as Problem);
          if (event.event === "change") {
            const change = data as Change;
            position = change.position;
            yield change;
          }
        }
        position = Math.max(position, passed);
      } catch (error) {
        if (signal?.aborted) return;
        if (error instanceof NameserviceError && !TEMPORARY.has(error.status)) throw error;
        if (error instanceof SyntaxError) throw error;
        // The connection broke, or the service is not available: reconnect.
      }
    }
  }

  async *#stream(filters: Record<string, unknown>, seen: (id: string) => void, signal: AbortSignal | undefined) {
    const url = new URL(`${this.#eventsUrl}/v1/events`);
    for (const [name, value] of Object.entries(filters)) {
      for (const one of Array.isArray(value) ? (value as unknown[]) : [value]) if (one !== undefined) url.searchParams.append(name, String(one));
    }
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (this.#token) headers["authorization"] = `Bearer ${this.#token}`;
    // Leaving the loop closes the connection.
    const closing = new AbortController();
    const both = signal ? AbortSignal.any([signal, closing.signal]) : closing.signal;
    try {
      const response = await this.#send(new Request(url, { headers, signal: both }));
      if (!response.ok || !response.body) throw await errorFrom(response);
      const parser = new EventSourceParserStream({ onId: seen });
      const reader = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(parser).getReader();
      for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
    } finally {
      closing.abort();
    }
  }
}

/** Returns the body of an answer. Rejections were thrown before. */
function given<T>(answer: { data?: T; response: Response }): T {
  if (answer.data === undefined) throw new NameserviceError(answer.response.status, { detail: "the answer has no body" });
  return answer.data;
}
