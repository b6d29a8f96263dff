/** What the client does with a service that fails: FAULTS_URL is that of clients/faults.py. The cases are those of test_faults.py. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { test } from "node:test";
import { EventSource } from "eventsource";
import {
  Nameservice,
  NameserviceError,
  NotAllowed,
  OutcomeUnknown,
  PositionExpired,
  Unavailable,
  parse,
  type Change,
  type Followed,
  type NameserviceOptions,
} from "../src/index.js";
import { LONG, refreshImmediately, threeAttempts, timeout } from "./support.js";

const FAULTS = process.env["FAULTS_URL"] ?? "";
const skip = FAULTS === "" ? "FAULTS_URL is not set" : false;
/** Longer than a test may take. */
const NEVER = { timeout: 900, deadline: 1800 };
const UNBORN = { id: null, t: 0 };
const ID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
const head = (t: number) => ({ id: ID, t });

interface Requested {
  path: string;
  key: string | null;
  fault: string;
}

/** A client that meets the faults of a plan. */
function faulty(plan: string, options: NameserviceOptions = {}) {
  const name = randomUUID();
  const names = new Nameservice({ url: `${FAULTS}/${name}/${plan}`, ...LONG, ...options });
  const requests = async () => (await (await fetch(`${FAULTS}/requests/${name}`)).json()) as Requested[];
  /**
   * Asserts that the plan was met, and that one request without a fault followed. Where a fault hangs, the client is not patient: a request
   * that the machine held up was then repeated, too.
   */
  const assertMet = async () => {
    const met = (await requests()).map((request) => request.fault);
    const planned = [...plan.split(","), "-"];
    assert.deepEqual(met.slice(0, planned.length), planned);
    assert(met.length === planned.length || plan.startsWith("hang"), String(met));
  };
  return { names, requests, assertMet };
}

/** How many seconds a client waits for an answer, or for the next event: long, unless it never comes. */
const patience = (fault: string) => (fault.startsWith("hang") ? 1 : LONG.timeout);

const sound = new Nameservice({ url: `${FAULTS || "http://localhost"}/sound/-`, ...LONG });

async function ledger(): Promise<string> {
  const { data } = await sound.api.POST("/v1/ledgers", { body: { address: `faults/${randomUUID()}` } });
  return data!.address;
}

async function push(names: Nameservice, address: string, t: number, expected?: typeof UNBORN, key?: string) {
  const header = key ? { "Idempotency-Key": key } : {};
  const body = { new: head(t), ...(expected ? { expected: expected as never } : {}) };
  return (await names.api.PUT("/v1/heads/{address}", { params: { path: { address }, header }, body })).data;
}

async function headChanges(address: string): Promise<number> {
  const { data } = await sound.api.GET("/v1/history/{address}", { params: { path: { address }, query: { concern: "head" } } });
  return data!.changes.length;
}

/** Runs this and returns its error. */
async function failure(work: Promise<unknown>): Promise<{ error: unknown }> {
  const error = await work.then(
    () => assert.fail("it succeeded"),
    (error: unknown) => error,
  );
  return { error };
}

const READ_FAULTS = ["lost", "cut-headers", "cut-body", "cut-silently", "hang", "hang-body", "unavailable", "gateway"];

for (const fault of [...READ_FAULTS, "outcome-unknown"]) {
  test(`a write is applied once through every fault: ${fault}`, { skip, timeout }, async () => {
    const address = await ledger();
    const { names, requests, assertMet } = faulty(`${fault},${fault}`, { timeout: patience(fault) });
    assert.equal((await push(names, address, 1, UNBORN))?.status, "updated");
    await assertMet();
    const sent = await requests();
    assert.equal(new Set(sent.map((request) => request.key)).size, 1);
    assert(sent[0]!.key);
    assert.equal(await headChanges(address), 1);
  });
}

for (const fault of READ_FAULTS) {
  test(`a read is repeated through every fault: ${fault}`, { skip, timeout }, async () => {
    const address = await ledger();
    const { names, assertMet } = faulty(`${fault},${fault}`, { timeout: patience(fault) });
    assert.deepEqual((await names.record(address)).head, UNBORN);
    await assertMet();
  });
}

test("a write that is lost is known again after a restart", { skip, timeout }, async () => {
  const address = await ledger();
  const { names, requests } = faulty("restart");
  const begun = performance.now();
  assert.equal((await push(names, address, 1, UNBORN))?.status, "updated");
  assert(performance.now() - begun > 3000);
  assert.equal(new Set((await requests()).map((request) => request.key)).size, 1);
  assert.equal(await headChanges(address), 1);
});

for (const fault of ["hang", "hang-body"]) {
  test(`a call ends with its deadline: ${fault}`, { skip, timeout }, async () => {
    const { error } = await failure(faulty(`${fault}*`, { ...NEVER, deadline: 1 }).names.record(await ledger()));
    assert(error instanceof Unavailable);
  });
}

test("an attempt ends with its timeout though there is always something to read", { skip, timeout }, async () => {
  const send = async (request: Request) => {
    const drip = new ReadableStream({
      async pull(controller) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        if (request.signal.aborted) controller.error(request.signal.reason);
        else controller.enqueue(new Uint8Array([32]));
      },
    });
    return new Response(drip, { headers: { "content-type": "application/json" } });
  };
  const { error } = await failure(new Nameservice({ url: FAULTS, ...NEVER, deadline: 1, fetch: send }).record("mydb"));
  assert(error instanceof Unavailable);
});

test("a write that the service never decides on is unknown, with its key", { skip, timeout }, async (context) => {
  const address = await ledger();
  const { names, requests } = faulty("cut-body*", threeAttempts(context));
  const { error } = await failure(push(names, address, 1, UNBORN));
  assert(error instanceof OutcomeUnknown);
  const key = error.idempotencyKey!;
  assert.deepEqual((await requests()).map((request) => request.key), [key, key, key]);
  const again = await push(sound, address, 1, UNBORN, key);
  assert.deepEqual([again?.status, again?.replayed], ["updated", true]);
});

test("a service that is unavailable has written nothing", { skip, timeout }, async (context) => {
  const address = await ledger();
  const { names, requests } = faulty("unavailable*", threeAttempts(context));
  const { error } = await failure(push(names, address, 1));
  assert(error instanceof Unavailable);
  assert.equal((await requests()).length, 3);
  assert.deepEqual((await sound.record(address)).head, UNBORN);
});

test("a failed release warns and the result of the work counts", { skip, timeout }, async () => {
  const address = await ledger();
  const warnings: string[] = [];
  const listen = (warning: Error) => warnings.push(warning.message);
  process.on("warning", listen);
  try {
    const options = { holder: "one" };
    assert.equal(await faulty("-,forbidden*").names.withLease(address, "index_lock", options, async () => "done"), "done");
    const work = faulty("-,forbidden*").names.withLease(address, "index_lock", options, async () => {
      throw new RangeError("of the work");
    });
    assert((await failure(work)).error instanceof RangeError);
    // Warnings are emitted after the work that they are about.
    await new Promise(setImmediate);
    assert.equal(warnings.filter((text) => text.includes("was not released")).length, 2);
  } finally {
    process.off("warning", listen);
  }
});

test("a wait whose second request fails leaves no lease", { skip, timeout }, async () => {
  const address = await ledger();
  const work = faulty("-,forbidden").names.withLease(address, "index_lock", { wait: 5 }, async () => "done");
  assert((await failure(work)).error instanceof NotAllowed);
  assert.equal((await sound.record(address)).status?.payload["state"], "ready");
});

test("the end of the work does not wait for a refresh, and loses nothing afterwards", { skip, timeout }, async (context) => {
  const { names, requests } = faulty("-,hang,-", NEVER);
  const address = await ledger();
  const kept = refreshImmediately(context);
  let signal: AbortSignal | undefined;
  await names.withLease(address, "index_lock", { ttlSeconds: 60 }, async (lease) => {
    signal = lease.signal;
    while ((await requests()).length < 2) await new Promise((resolve) => setTimeout(resolve, 50));
  });
  assert.deepEqual((await requests()).map((request) => request.fault), ["-", "hang", "-"]);
  // Its time is over.
  for (const expire of kept.expiries.values()) expire();
  assert.equal(signal?.aborted, false);
});

test("a refresh in flight does not keep the process", { skip, timeout }, async () => {
  const name = randomUUID();
  // Of a lease of 600 seconds, the refresh is due immediately. What is left of it would keep the process for longer than the test waits.
  const program = `
    import { Nameservice } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const names = new Nameservice({ url: ${JSON.stringify(`${FAULTS}/${name}/-,hang,-`)}, ...${JSON.stringify(NEVER)} });
    const real = setTimeout;
    globalThis.setTimeout = (work, milliseconds, ...rest) => real(work, milliseconds === 200_000 ? 0 : milliseconds, ...rest);
    const requests = async () => (await fetch(${JSON.stringify(`${FAULTS}/requests/${name}`)})).json();
    await names.withLease(${JSON.stringify(await ledger())}, "index_lock", { ttlSeconds: 600 }, async () => {
      while ((await requests()).length < 2) await new Promise((done) => setTimeout(done, 50));
    });
    console.log("done");`;
  const run = spawnSync(process.execPath, ["--input-type=module", "--eval", program], { encoding: "utf8", timeout: 120_000 });
  assert.deepEqual([run.stdout, run.status], ["done\n", 0], `${run.stdout} ${run.stderr} ${run.signal}`);
});

for (const fault of ["lost", "cut-headers", "cut-body", "hang-body", "unavailable", "gateway"]) {
  test(`events are complete through every fault: ${fault}`, { skip, timeout }, async () => {
    const address = await ledger();
    const { cursor } = await sound.snapshot();
    for (let t = 1; t < 10; t++) await push(sound, address, t);
    const { names, requests, assertMet } = faulty(`${fault},${fault}`, { silence: patience(fault) });
    const seen: unknown[] = [];
    for await (const change of names.events({ after: cursor, address: [address], concern: ["head"] })) {
      if (seen.push(change.watermark) === 9) break;
    }
    assert.deepEqual(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    await assertMet();
    const sent = (await requests()).slice(0, 3);
    // It goes on where it was, not where it began.
    if (fault === "cut-body" || fault === "hang-body") assert.equal(new Set(sent.map((request) => request.path)).size, 3);
  });
}

test("a library of others loses nothing, whatever block its stream is cut after: eventsource", { skip, timeout }, async () => {
  const address = await ledger();
  const { position } = await sound.snapshot();
  const cuts = ["cut-after-beginning", "cut-after-change", "cut-after-heartbeat", "stop"];
  const query = new URLSearchParams({ address, concern: "head" });
  const url = `${FAULTS}/${randomUUID()}/${cuts.join(",")}/v1/events?${query}`;
  const seen: number[] = [];
  let [connections, t] = [0, 0];
  let events: EventSource | undefined;
  try {
    await new Promise<void>((done, failed) => {
      const connect: typeof fetch = async (url, init) => {
        if (connections++ > 0) {
          if (!new Headers(init?.headers).has("last-event-id")) failed(new Error("it begins again with what changes then"));
          // While it is not connected, something changes.
          await push(sound, address, ++t);
        }
        return fetch(url, init);
      };
      events = new EventSource(url, { fetch: connect });
      events.addEventListener("change", (event) => {
        const change = parse(event.data as string) as Change;
        seen.push(change.position);
        if (connections > cuts.length && change.watermark === t) done();
      });
      events.addEventListener("error", () => {
        if (events?.readyState === EventSource.CLOSED) failed(new Error("it does not come back"));
      });
    });
  } finally {
    events?.close();
  }
  const { data } = await sound.api.GET("/v1/changes", { params: { query: { after: position, address: [address], concern: ["head"] } } });
  assert(t >= cuts.length);
  assert.deepEqual(seen, data!.changes.map((change) => change.position));
});

test("a stream that falls silent is opened again", { skip, timeout }, async () => {
  const address = await ledger();
  const { cursor } = await sound.snapshot();
  await push(sound, address, 1);
  const { names, assertMet } = faulty("hang", { timeout: patience("hang") });
  for await (const change of names.events({ after: cursor, address: [address] })) {
    assert.equal(change.watermark, 1);
    break;
  }
  await assertMet();
});

for (const [fault, reason] of [["trimmed", "trimmed"], ["other-history", "other-history"], ["expires", "other-history"]] as const) {
  test(`what follows begins again with a snapshot and says so once: ${fault}`, { skip, timeout }, async () => {
    const { error } = await failure(faulty(fault).names.events({ after: "0000000000000000:1" }).next());
    assert(error instanceof PositionExpired && error.reason === reason);
    const address = await ledger();
    const events = faulty(fault).names.follow({ after: 0, prefix: address, address: [address] });
    const first = (await events.next()).value as Followed;
    assert(first.kind === "snapshot" && first.reason === reason);
    assert.deepEqual(first.records.map((record) => record.address), [address]);
    await push(sound, address, 1);
    const second = (await events.next()).value as Followed;
    assert(second.kind === "change" && second.change.watermark === 1);
    await events.return();
    // A place that was kept goes on without a snapshot.
    await push(sound, address, 2);
    const later = sound.follow({ after: second.cursor, prefix: address });
    const third = (await later.next()).value as Followed;
    assert(third.kind === "change" && third.change.watermark === 2);
    await later.return();
  });
}

test("a place ahead of the feed begins again", { skip, timeout }, async () => {
  const events = sound.follow({ after: 1e9, prefix: await ledger() });
  const first = (await events.next()).value as Followed;
  assert(first.kind === "snapshot" && first.reason === "ahead");
  await events.return();
});

test("a cursor that the service sends is kept", async () => {
  const cursor = "3f9c0a1b2c3d4e5f:7";
  const asked: (string | null)[] = [];
  const send = async (request: Request) => {
    const url = new URL(request.url);
    asked.push(url.searchParams.get("after"));
    if (url.pathname.endsWith("/snapshot")) return Response.json({ position: 6, feed_cursor: "3f9c0a1b2c3d4e5f:6", records: [] });
    const one = `event: timelines\ndata: of this feed\n\nevent: change\ndata: {"position": 7, "cursor": "${cursor}"}\nid: ${cursor}\n\n`;
    const two = 'event: change\ndata: {"position": 9}\nid: 3f9c0a1b2c3d4e5f:9\n\n';
    return new Response(asked.length > 2 ? two : one, { headers: { "content-type": "text/event-stream" } });
  };
  const places: unknown[] = [];
  for await (const event of new Nameservice({ url: "http://localhost", fetch: send }).follow()) {
    if (places.push(event.cursor) === 3) break;
  }
  assert.deepEqual(places, ["3f9c0a1b2c3d4e5f:6", cursor, "3f9c0a1b2c3d4e5f:9"]);
  assert.deepEqual(asked, [null, "3f9c0a1b2c3d4e5f:6", cursor]);
});

test("an id is not reached before the changes that precede it, though the stream breaks", async () => {
  const asked: (string | null)[] = [];
  const send = async (request: Request) => {
    asked.push(new URL(request.url).searchParams.get("after"));
    const change = (n: number) => `event: change\ndata: {"position": ${n}}\nid: ${n}\n\n`;
    const text = asked.length === 1 ? `${change(1)}${change(2)}: alive\nid: 8\n\nevent: change\ndata: {"position": 9}\nid: 9\n` : change(9);
    const body = new ReadableStream({
      start: (controller) => controller.enqueue(new TextEncoder().encode(text)),
      pull: (controller) => controller.error(new TypeError("terminated")),
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
  const seen: number[] = [];
  for await (const change of new Nameservice({ url: "http://localhost", fetch: send }).events({ after: 0 })) {
    if (seen.push(change.position) === 3) break;
  }
  assert.deepEqual(seen, [1, 2, 9]);
  assert.deepEqual(asked, ["0", "8"]);
});

test("a wait that is aborted ends at once", { timeout }, async () => {
  const ending = new AbortController();
  let sent = 0;
  const send = async () => {
    // Late enough that the pauses are long.
    if (++sent === 7) setTimeout(() => ending.abort(), 5);
    throw new TypeError("terminated");
  };
  const events = new Nameservice({ url: "http://localhost", fetch: send }).events({ after: 0, signal: ending.signal });
  let isDone = false;
  void events.next().then(({ done }) => (isDone = done === true));
  await once(ending.signal, "abort");
  // Before any timer can end the seventh pause, which is a second at least.
  await new Promise(setImmediate);
  assert.equal(isDone, true);
  assert.equal(sent, 7);
});

test("a URL or a token that cannot be used is an error at once, and is not shown", () => {
  const unusable: [string, string?][] = [
    ["localhost:8080"],
    ["ftp://user:secret@example.com"],
    ["user:secret@example.com"],
    ["http://user:sec/ret@example.com:x"],
    ["http://"],
    ["http://example.com/?secret=1"],
    ["http://localhost", "secret\n"],
    ["http://localhost", "secret secret"],
  ];
  for (const [url, token] of unusable) {
    assert.throws(
      () => new Nameservice({ url, token }),
      (error) => error instanceof TypeError && !/user|sec\/?ret/.test(`${error.stack} ${String(error.cause)}`.replace(/\n.*/s, "")),
      url,
    );
  }
});

test("a key that cannot be sent is an error at once", { skip, timeout }, async () => {
  const { names, requests } = faulty("-");
  const { error } = await failure(push(names, await ledger(), 1, undefined, "a\nb"));
  assert(error instanceof TypeError);
  assert.deepEqual(await requests(), []);
});

test("the user of a URL is sent, and in no message", async () => {
  const sent: (string | null)[] = [];
  const send = async (request: Request) => {
    sent.push(request.headers.get("authorization"));
    throw new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } });
  };
  for (const token of [undefined, "token"]) {
    const names = new Nameservice({ url: "http://user:secret@localhost/x", token, deadline: 0, fetch: send });
    const { error } = await failure(names.record("mydb"));
    assert(error instanceof Unavailable && !/user|secret/.test(error.message));
  }
  assert.deepEqual(sent, [`Basic ${btoa("user:secret")}`, "Bearer token"]);
});

test("an answer that is no JSON is an error at once", async () => {
  const send = async () => new Response("<h1>Hello</h1>", { headers: { "content-type": "text/html" } });
  const names = new Nameservice({ url: "http://localhost", fetch: send });
  const says = (words: RegExp) => (error: unknown) => error instanceof NameserviceError && words.test(error.message);
  await assert.rejects(names.record("mydb"), says(/is it a nameservice/));
  await assert.rejects(names.events({ after: 0 }).next(), says(/no stream of events/));
});
