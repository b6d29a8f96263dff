/**
 * Client of the nameservice: typed operations, events, leases and conflicts.
 *
 * ```ts
 * const names = new Nameservice();
 * await names.api.POST("/v1/ledgers", { body: { address: "mydb" } });
 * // Called again after a conflict: the commit is made anew on the head that is stored then.
 * await names.updateHead("mydb", async (head) => ({ id: await commitOn(head.id), t: head.t + 1 }));
 * for await (const change of names.events({ after: 0, address: ["mydb:*"] })) console.log(change.position, change.concern);
 * ```
 */
import { hostname } from "node:os";
import createClient, { type Client } from "openapi-fetch";
import { Conflict, NameserviceError, LeaseLost, UnknownRecord } from "./errors.js";
import { changes, follow, type Change, type EventOptions, type FeedPlace, type Followed, type Snapshot, type Streams } from "./events.js";
import { stringify } from "./json.js";
import { Lease, type LeaseOptions } from "./lease.js";
import type { components, paths } from "./schema.js";
import { selectionOf, type RecordFilters } from "./selection.js";
import { placeOf, repeating } from "./transport.js";

export * from "./errors.js";
export type { Change, EventOptions, FeedPlace, Followed, Snapshot } from "./events.js";
export { JsonNumber, parse, stringify } from "./json.js";
export { Lease, type LeaseOptions } from "./lease.js";
export type { components, operations, paths } from "./schema.js";
export type { RecordFilters } from "./selection.js";

type Schemas = components["schemas"];
export type Head = Schemas["Head"];

export interface NameserviceOptions {
  /** The service's URL; by default NAMESERVICE_URL, else http://127.0.0.1:8080. */
  url?: string;
  /** The bearer token; by default NAMESERVICE_TOKEN. */
  token?: string;
  /** Where event streams are served, if elsewhere (on AWS). */
  eventsUrl?: string;
  /**
   * How many seconds a call may take with all its attempts: connections, answers and pauses; 20 by default, longer than a restart of
   * the service. What the service is asked to `wait` is added. 0 for one attempt.
   */
  deadline?: number;
  /**
   * How many seconds one attempt may take, its answer included; 35 by default, and half of the deadline at most, so that a connection
   * that has died is replaced in time.
   */
  timeout?: number;
  /** How many seconds an event stream may be silent before it is opened again; 50 by default. The service writes every 15 seconds. */
  silence?: number;
  /** Sends a request, instead of the global `fetch`. */
  fetch?: (request: Request) => Promise<Response>;
}

/** The filters of a snapshot beside its prefix, and what ends the reading. */
export type SnapshotOptions = Omit<RecordFilters, "prefix"> & { signal?: AbortSignal | undefined };

/**
 * A service at a URL.
 *
 * `api` has every operation by its path, typed (openapi-fetch); a rejection throws a `NameserviceError`. Writes carry an
 * `Idempotency-Key` and are repeated under it while their outcome is unknown, so that a lost answer is neither applied twice nor
 * reported as a conflict with itself. A URL or token that cannot be used is a `TypeError` of the constructor.
 *
 * No number of a payload is changed: an integer beyond ±(2^53 - 1) is a `bigint`, and any other number that no double equals is a
 * `JsonNumber`. Both are written as they were read; `JSON.stringify` throws on them, `stringify` does not.
 */
export class Nameservice {
  readonly api: Client<paths>;
  readonly #streams: Streams;

  constructor(options: NameserviceOptions = {}) {
    const url = options.url ?? process.env["NAMESERVICE_URL"] ?? "http://127.0.0.1:8080";
    const token = options.token ?? process.env["NAMESERVICE_TOKEN"];
    const { deadline = 20, timeout = 35, silence = 50, fetch: send = fetch } = options;
    const place = placeOf(url, token);
    const end = async (signal: AbortSignal | undefined) => {
      const page = given(await this.api.GET("/v1/snapshot", { params: { query: { limit: 1 } }, signal }));
      return placeAfter(page);
    };
    this.#streams = { send, place: options.eventsUrl ? placeOf(options.eventsUrl, token) : place, timeout, silence, end };
    // An address comes last in a path and may contain any character, so it is escaped.
    this.api = createClient<paths>({ baseUrl: place.url, fetch: repeating(send, { place, deadline, timeout }), bodySerializer: stringify });
  }

  /** Returns a record with all its concerns. */
  async record(address: string): Promise<Schemas["Record"]> {
    return given(await this.api.GET("/v1/records/{address}", { params: { path: { address } } }));
  }

  /**
   * Moves a head by compare-and-set, deciding again after each conflict. `decide` gets the stored head (`{ id: null, t: 0 }` where
   * there is no commit yet) and returns the new one, or null to leave it. It is called again after a conflict, with the head that
   * another writer has stored meanwhile, and has to make the commit anew, on that head: one made before leaves the other writer's out
   * of the history. The same commit again is a `TypeError`. Returns the head that is stored then. Throws `Conflict` after so many
   * attempts.
   */
  async updateHead(
    address: string,
    decide: (stored: Head) => Schemas["HeadValue"] | null | Promise<Schemas["HeadValue"] | null>,
    options: { lease?: Schemas["Claim"]; attempts?: number } = {},
  ): Promise<Head> {
    let { head } = await this.record(address);
    if (!head) throw new NameserviceError(404, { type: "/wrong-kind", detail: `${address} has no head: it is no ledger` });
    const attempts = options.attempts ?? 10;
    // The head on which each commit was made.
    const parents = new Map<string | null | undefined, string | null>();
    for (let attempt = 1; ; attempt++) {
      const next = await decide(head);
      if (next === null) return head;
      const [commit, stored] = [next.id, head.id ?? null];
      if (!parents.has(commit)) parents.set(commit, stored);
      // A commit that is stored already leaves none out.
      if (parents.get(commit) !== stored && commit !== stored) {
        const made = `commit ${commit} was made before another writer moved the head of ${address} to ${stored}, which it does not follow`;
        throw new TypeError(`nothing was pushed: ${made}; make a new commit on the head that is passed`);
      }
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
    const take = async (body: Schemas["Wanted"], signal: AbortSignal, wait?: number) =>
      given(await this.api.PUT("/v1/leases/{address}", { params: { path, query: wait ? { wait } : {} }, body, signal }));
    const lease = new Lease(take, address, name, holder, options);
    try {
      await lease.acquire();
      const result = await work(lease);
      lease.check();
      return result;
    } finally {
      lease.end();
      // Without a token nothing was acquired.
      if (lease.token > 0) await this.#release(address, lease);
    }
  }

  /** Releases a lease. A failure is a warning: what the work has returned, or why it failed, counts. The lease expires on its own. */
  async #release(address: string, { name, holder, token }: Lease): Promise<void> {
    try {
      await this.api.DELETE("/v1/leases/{address}", { params: { path: { address }, query: { name, holder, token } } });
    } catch (error) {
      // Another holder has it, or the record is gone: there is nothing to release.
      if (error instanceof LeaseLost || error instanceof UnknownRecord) return;
      const reason = error instanceof Error ? error.message : String(error);
      process.emitWarning(`the lease ${name} of ${address} was not released: ${reason}`, "NameserviceWarning");
    }
  }

  /**
   * Returns all records, and the place in the feed from which to follow what happens to them. `prefix` and the filters in `options`
   * are those of `events`.
   */
  async snapshot(prefix?: string, options: SnapshotOptions = {}): Promise<Snapshot> {
    const { signal, ...filters } = options;
    const selection = selectionOf({ ...filters, prefix });
    const records: Schemas["Record"][] = [];
    let cursor: string | undefined;
    let first: Schemas["SnapshotPage"] | undefined;
    do {
      const query = { ...(selection.prefix ? { prefix: selection.prefix } : {}), ...(cursor ? { cursor } : {}) };
      const page: Schemas["SnapshotPage"] = given(await this.api.GET("/v1/snapshot", { params: { query }, signal }));
      first ??= page;
      records.push(...page.records.filter(selection.has));
      cursor = page.cursor ?? undefined;
    } while (cursor);
    return { records, position: first.position, cursor: placeAfter(first) };
  }

  /**
   * Yields changes as they happen, in the order of the feed, each once, across reconnections. `after` is the place up to which
   * everything is known, by default the end of the feed: keep the `cursor` of each change once it is handled (its `position`, if the
   * service sends none), to continue from there after a restart. Throws `PositionExpired` if the feed does not continue from there:
   * begin again with `snapshot`, or use `follow`, which does. It does not end on its own.
   */
  async *events(options: EventOptions = {}): AsyncGenerator<Change, void, undefined> {
    for await (const { change } of changes(this.#streams, options)) yield change;
  }

  /**
   * Yields a snapshot of all records, and then what happens to them, as `events` does. With `after`, a `cursor` of before, it continues
   * there without a snapshot: keep that of each event once it is handled. If the feed does not continue there, because it no longer
   * holds what follows, or is another one, such as that of a restored backup, another snapshot comes, with the `reason`: forget what it
   * does not name. All filters but `concern`, which is of the changes alone, select the records of a snapshot, too.
   */
  follow(options: EventOptions = {}): AsyncGenerator<Followed, void, undefined> {
    const { address, prefix, kind, source_type, concern, signal } = options;
    const filters = { address, prefix, kind, source_type, concern };
    const snapshot = async () => {
      const found = await this.snapshot(prefix, { address, kind, source_type, signal });
      // Filters that the service rejects are an error before a snapshot of nothing says that everything is gone.
      if (Object.values(filters).some((filter) => filter !== undefined)) {
        const query = { ...filters, after: found.cursor as number, limit: 1 };
        await this.api.GET("/v1/changes", { params: { query }, signal });
      }
      return found;
    };
    return follow(this.#streams, snapshot, options);
  }
}

/** Returns where to continue after a snapshot: the cursor, from a service that sends it. */
function placeAfter(page: Schemas["SnapshotPage"] & { feed_cursor?: string }): FeedPlace {
  return page.feed_cursor ?? page.position;
}

/** Returns the body of an answer. Rejections were thrown before. */
function given<T>(answer: { data?: T; response: Response }): T {
  if (answer.data === undefined) throw new NameserviceError(answer.response.status, { detail: "the answer has no body" });
  return answer.data;
}
