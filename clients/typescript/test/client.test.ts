/** The client against a running service: NAMESERVICE_URL. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { test } from "node:test";
import {
  AlreadyExists,
  Conflict,
  HasDependents,
  JsonNumber,
  LeaseHeld,
  LeaseLost,
  Nameservice,
  NameserviceError,
  NotYet,
  OutcomeUnknown,
  PositionExpired,
  TransactionRejected,
  Unavailable,
  UnknownRecord,
  parse,
  stringify,
  type Change,
  type Followed,
  type Head,
  type Lease,
  type RecordFilters,
  type components,
} from "../src/index.js";
import { selectionOf } from "../src/selection.js";
import { LONG, cid, refreshImmediately, threeAttempts, timeout } from "./support.js";

const URL = process.env["NAMESERVICE_URL"]!;
const names = new Nameservice({ url: URL, ...LONG });
const UNBORN = { id: null, t: 0 };

const head = (n: number) => ({ id: cid(n), t: n });

async function ledger(): Promise<string> {
  const { data } = await names.api.POST("/v1/ledgers", { body: { address: `typescript/${randomUUID()}` } });
  return data!.address;
}

function pushHead(service: Nameservice, address: string, expected: unknown, n: number) {
  return service.api.PUT("/v1/heads/{address}", { params: { path: { address } }, body: { expected: expected as Head, new: head(n) } });
}

/** Loses the answers to the first requests or, with `before`, the requests; or answers in place of the service. */
function cutting(cuts: number, options: { before?: boolean; answer?: () => Response } = {}) {
  const sent: Request[] = [];
  const send = async (request: Request) => {
    sent.push(request.clone());
    if (cuts === 0) return fetch(request);
    cuts -= 1;
    if (!options.before) await (await fetch(request)).arrayBuffer();
    if (options.answer) return options.answer();
    throw new TypeError("cut");
  };
  return { sent, send };
}

test("a new ledger is unborn", async () => {
  const address = await ledger();
  const record = await names.record(address);
  assert.deepEqual(record.head, UNBORN);
  assert.equal(record.status?.payload["state"], "ready");
});

test("an address may hold slashes and a branch", async () => {
  const name = `typescript/${randomUUID()}/a b`;
  await names.api.POST("/v1/ledgers", { body: { address: `${name}:release/v1` } });
  assert.equal((await names.record(`${name}:release/v1`)).branch, "release/v1");
});

test("a push that expects another value is a conflict with the stored one", async () => {
  const address = await ledger();
  const { data } = await pushHead(names, address, UNBORN, 1);
  assert.equal(data?.status, "updated");
  await assert.rejects(pushHead(names, address, UNBORN, 2), (error) => {
    assert(error instanceof Conflict);
    assert.deepEqual(error.actual, head(1));
    return error.status === 409;
  });
});

test("rejections have their errors", async () => {
  const address = await ledger();
  await assert.rejects(names.api.POST("/v1/ledgers", { body: { address } }), AlreadyExists);
  await assert.rejects(names.record("typescript/nobody"), UnknownRecord);
  await assert.rejects(names.record("a:b:c"), (error) => error instanceof NameserviceError && error.kind === "invalid-address");
  await assert.rejects(names.api.GET("/v1/records/{address}", { params: { path: { address }, query: { min_t: 1 } } }), NotYet);
  const search = `${address.replace(":main", "")}-search`;
  const body = { source_type: "f:Bm25Index", config: { k1: 1.2 }, dependencies: [address] };
  await names.api.PUT("/v1/graph-sources/{address}", { params: { path: { address: search } }, body });
  await assert.rejects(names.api.POST("/v1/retractions/{address}", { params: { path: { address } } }), (error) => {
    return error instanceof HasDependents && error.dependents.length === 1;
  });
});

test("a lost answer is repeated and applied once", async () => {
  const address = await ledger();
  const { sent, send } = cutting(2);
  const { data } = await pushHead(new Nameservice({ url: URL, ...LONG, fetch: send }), address, UNBORN, 1);
  assert.equal(data?.status, "updated");
  assert.equal(sent.length, 3);
  assert.equal(new Set(sent.map((request) => request.headers.get("idempotency-key"))).size, 1);
  const history = await names.api.GET("/v1/history/{address}", { params: { path: { address }, query: { concern: "head" } } });
  assert.equal(history.data?.changes.length, 1);
});

test("a write whose answers are all lost is unknown", async (context) => {
  const address = await ledger();
  const { sent, send } = cutting(Infinity);
  await assert.rejects(pushHead(new Nameservice({ url: URL, ...threeAttempts(context, send) }), address, UNBORN, 1), OutcomeUnknown);
  assert.equal(sent.length, 3);
  assert.deepEqual((await names.record(address)).head, head(1));
});

test("a gateway that fails leaves a write unknown", async (context) => {
  const address = await ledger();
  const { sent, send } = cutting(Infinity, { before: true, answer: () => new Response("Bad Gateway", { status: 502 }) });
  await assert.rejects(pushHead(new Nameservice({ url: URL, ...threeAttempts(context, send) }), address, UNBORN, 1), OutcomeUnknown);
  assert.equal(sent.length, 3);
});

test("after a lost attempt only a decision of the service is certain", async () => {
  const outcome = async (status: number, body: object, isLost: boolean) => {
    let sent = 0;
    const send = async () => {
      if (isLost && sent++ === 0) throw new TypeError("cut");
      return Response.json(body, { status });
    };
    return pushHead(new Nameservice({ url: URL, fetch: send }), "mydb", UNBORN, 1).then(
      () => assert.fail("it succeeded"),
      (error: unknown) => error,
    );
  };
  const problem = (slug: string, status: number) => ({ type: `https://nameservice.dev/problems/${slug}`, status, detail: "d" });
  const decisions = [[409, "limit-reached"], [422, "idempotency-key-reused"]] as const;
  for (const [status, slug] of decisions) {
    const error = await outcome(status, problem(slug, status), true);
    assert(error instanceof NameserviceError && !(error instanceof OutcomeUnknown) && error.kind === slug, slug);
  }
  const early = [
    [400, "invalid-body"], [401, "unauthorized"], [403, "insufficient-scope"], [403, "address-not-covered"], [404, "not-found"],
    [405, "method-not-allowed"], [408, "request-timeout"], [413, "payload-too-large"], [415, "unsupported-media-type"], [501, "unsupported"],
    [404, "unknown-record"], [409, "wrong-kind"], [410, "retracted"], [409, "conflict"], [409, "lease-lost"], [409, "transaction-refused"],
  ] as const;
  for (const [status, slug] of early) {
    const error = await outcome(status, problem(slug, status), true);
    assert(error instanceof OutcomeUnknown && error.kind === "outcome-unknown" && error.status === status, slug);
    assert(!((await outcome(status, problem(slug, status), false)) instanceof OutcomeUnknown), slug);
  }
  for (const status of [400, 401, 403, 404, 409, 410, 413, 422]) {
    assert((await outcome(status, { message: "no" }, true)) instanceof OutcomeUnknown, String(status));
  }
});

test("a service that is unavailable has written nothing", async (context) => {
  const address = await ledger();
  const problem = { type: "https://nameservice.dev/problems/unavailable", status: 503, detail: "later" };
  const { sent, send } = cutting(Infinity, { before: true, answer: () => Response.json(problem, { status: 503 }) });
  await assert.rejects(pushHead(new Nameservice({ url: URL, ...threeAttempts(context, send) }), address, UNBORN, 1), Unavailable);
  assert.equal(sent.length, 3);
});

test("a read whose answers are lost is unavailable", async (context) => {
  const address = await ledger();
  const { sent, send } = cutting(Infinity);
  await assert.rejects(new Nameservice({ url: URL, ...threeAttempts(context, send) }).record(address), Unavailable);
  assert.equal(sent.length, 3);
});

test("writers that conflict all succeed in the end and are in one history", async () => {
  const address = await ledger();
  const commits = new Map<string, { writer: number; parent: string | null }>();
  const write = (writer: number) =>
    names.updateHead(
      address,
      (stored) => {
        const parent = stored.id ?? null;
        const id = cid(`${writer} ${parent}`);
        commits.set(id, { writer, parent });
        return { id, t: stored.t + 1 };
      },
      { attempts: 50 },
    );
  await Promise.all(Array.from({ length: 8 }, (_, n) => write(n)));
  const stored = (await names.record(address)).head!;
  assert.equal(stored.t, 8);
  const history: number[] = [];
  for (let id = stored.id; id; ) {
    const { writer, parent }: { writer: number; parent: string | null } = commits.get(id)!;
    history.push(writer);
    id = parent;
  }
  assert.deepEqual(history.sort(), [0, 1, 2, 3, 4, 5, 6, 7]);
});

test("a commit that was made before a conflict is not pushed on the head of another writer", async () => {
  const address = await ledger();
  const decide = async (stored: Head) => {
    if (!stored.id) await pushHead(names, address, UNBORN, 1);
    return { id: cid("mine"), t: stored.t + 1 };
  };
  await assert.rejects(names.updateHead(address, decide), (error) => error instanceof TypeError && /make a new commit/.test(error.message));
  assert.deepEqual((await names.record(address)).head, head(1));
});

test("a commit is not pushed on the head of another writer, even if another one was made meanwhile", async () => {
  const address = await ledger();
  const seen: number[] = [];
  const decide = async (stored: Head) => {
    seen.push(stored.t);
    await pushHead(names, address, stored, seen.length);
    return { id: cid(seen.length === 2 ? "another" : "mine"), t: stored.t + 1 };
  };
  await assert.rejects(names.updateHead(address, decide), (error) => error instanceof TypeError && /make a new commit/.test(error.message));
  assert.deepEqual(seen, [0, 1, 2]);
  assert.deepEqual((await names.record(address)).head, head(3));
});

test("a commit that another writer has stored meanwhile is stored", async () => {
  const address = await ledger();
  const same = { id: cid("same"), t: 2 };
  const decide = async (stored: Head) => {
    // The same commit, under a t of its own.
    if (!stored.id) {
      await names.api.PUT("/v1/heads/{address}", { params: { path: { address } }, body: { expected: UNBORN, new: same } });
    }
    return { id: same.id, t: Math.max(1, stored.t) };
  };
  assert.deepEqual(await names.updateHead(address, decide), same);
});

test("a decision not to push leaves the head", async () => {
  assert.deepEqual(await names.updateHead(await ledger(), () => null), UNBORN);
});

test("events are the changes in order across broken connections", async () => {
  const address = await ledger();
  const { position } = await names.snapshot(address);
  for (let n = 1; n < 10; n++) await names.api.PUT("/v1/heads/{address}", { params: { path: { address } }, body: { new: head(n) } });
  let streams = 0;
  const breaking = async (request: Request) => {
    const response = await fetch(request);
    if (!request.url.includes("/v1/events")) return response;
    streams += 1;
    let chunks = 0;
    const cut = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        // One event at a time, and the third is cut in its middle.
        for (const event of new TextDecoder().decode(chunk).split(/(?<=\n\n)/)) {
          chunks += 1;
          if (chunks < 3) controller.enqueue(new TextEncoder().encode(event));
          else controller.enqueue(new TextEncoder().encode(event.slice(0, event.length / 2)));
          if (chunks === 3) return controller.terminate();
        }
      },
    });
    return new Response(response.body!.pipeThrough(cut), response);
  };
  const reader = new Nameservice({ url: URL, fetch: breaking });
  const seen: Change[] = [];
  for await (const change of reader.events({ after: position, address: [address], concern: ["head"] })) {
    if (seen.push(change) === 9) break;
  }
  assert.deepEqual(seen.map((change) => change.watermark), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert(streams > 1, "no stream was cut");
});

test("an iteration ends with its signal", async () => {
  const ending = new AbortController();
  const address = await ledger();
  const seen: Change[] = [];
  for await (const change of names.events({ after: 0, address: [address], signal: ending.signal })) {
    seen.push(change);
    ending.abort();
  }
  assert(seen.length >= 1);
});

test("a position beyond the end is rejected", async () => {
  await assert.rejects(names.events({ after: 1e9 }).next(), (error) => {
    return error instanceof NameserviceError && error.kind === "position-ahead";
  });
});

test("an expired stream says so", async () => {
  const answer = () => new Response('event: expired\ndata: {"oldest": 7}\n\n', { headers: { "content-type": "text/event-stream" } });
  const { send } = cutting(1, { before: true, answer });
  await assert.rejects(new Nameservice({ url: URL, fetch: send }).events({ after: 1 }).next(), (error) => {
    return error instanceof PositionExpired && error.oldest === 7;
  });
});

test("a snapshot has everything and where to continue", async () => {
  const address = await ledger();
  const { records, position } = await names.snapshot(address);
  assert.deepEqual(records.map((record) => record.address), [address]);
  await pushHead(names, address, UNBORN, 1);
  const { data } = await names.api.GET("/v1/changes", { params: { query: { after: position, address: [address] } } });
  assert.deepEqual(data?.changes.map((change) => change.concern), ["head"]);
});

test("what is followed begins with a snapshot of what the filters select", async () => {
  const name = `typescript/${randomUUID()}`;
  for (const address of ["a", "a:dev", "ab", "a[b]", "\u{1f600}", "\u{1f601}"]) {
    await names.api.POST("/v1/ledgers", { body: { address: `${name}/${address}` } });
  }
  const body = { source_type: "f:Bm25Index", config: {}, dependencies: [`${name}/a:main`] };
  await names.api.PUT("/v1/graph-sources/{address}", { params: { path: { address: `${name}/search` } }, body });
  const faces = ["\u{1f600}:main", "\u{1f601}:main"];
  const cases: [RecordFilters, string[]][] = [
    [{ address: [`${name}/*`] }, ["a:dev", "a:main", "a[b]:main", "ab:main", "search:main", ...faces]],
    [{ address: [`${name}/a`] }, ["a:main"]],
    [{ address: [`${name}/a:*`] }, ["a:dev", "a:main"]],
    [{ address: [`${name}/a?:*`] }, ["ab:main"]],
    [{ address: [`${name}/?:*`] }, ["a:dev", "a:main", ...faces]],
    [{ address: [`${name}/a[b]`] }, ["a[b]:main"]],
    [{ address: [`${name}/a[b]*`] }, ["a[b]:main"]],
    [{ address: [`${name}/\u{1f600}*`, `${name}/\u{1f601}*`] }, faces],
    [{ address: [`${name}/*d*v`, `${name}/**b:*n`] }, ["a:dev", "ab:main"]],
    [{ address: [`${name}/a:*`], prefix: `${name}/a:d` }, ["a:dev"]],
    [{ address: [`${name}/a:*`], prefix: `${name}/ab` }, []],
    [{ prefix: `${name}/a:` }, ["a:dev", "a:main"]],
    [{ prefix: `${name}/`, kind: "graph_source" }, ["search:main"]],
    [{ prefix: `${name}/`, source_type: "f:Bm25Index" }, ["search:main"]],
    [{ prefix: `${name}/`, source_type: "f:Other" }, []],
  ];
  for (const [filters, expected] of cases) {
    const found = (of: { address: string }[]) => [...new Set(of.map((one) => one.address.slice(name.length + 1)))].sort();
    const first = (await names.follow(filters).next()).value as Followed;
    assert(first.kind === "snapshot");
    assert.deepEqual(found(first.records), expected, JSON.stringify(filters));
    // The service selects the same changes.
    const { data } = await names.api.GET("/v1/changes", { params: { query: { ...filters, after: 0, limit: 1000 } } });
    assert.deepEqual(found(data!.changes), expected, JSON.stringify(filters));
  }
});

test("filters that the service rejects are an error, and no snapshot of nothing", async () => {
  const rejected: Record<string, unknown>[] = [
    { address: ["my@db"] },
    { address: ["mydb:main:main"] },
    { address: [""] },
    { address: [`*${"a".repeat(1000)}`] },
    { address: Array<string>(101).fill("a") },
    { prefix: "" },
    { prefix: "a".repeat(1001) },
    { kind: "book" },
    { source_type: "" },
    { concern: ["tail"] },
  ];
  for (const filters of rejected) {
    await assert.rejects(
      names.follow(filters).next(),
      (error) => error instanceof NameserviceError && error.status === 400,
      JSON.stringify(filters).slice(0, 80),
    );
  }
});

test("no pattern takes long", { timeout }, () => {
  const record = { address: `${"a".repeat(900)}:main` } as components["schemas"]["Record"];
  for (const pattern of [`${"*a".repeat(400)}b*`, `*${"a".repeat(600)}b*`, `${"*?a".repeat(300)}b*`]) {
    const selection = selectionOf({ address: [pattern] });
    for (let n = 0; n < 20; n++) assert(!selection.has(record));
  }
});

test("a lease is held while the work runs and released after it", async () => {
  const address = await ledger();
  const result = await names.withLease(address, "index_lock", { holder: "one" }, async (lease) => {
    await assert.rejects(
      names.withLease(address, "index_lock", { holder: "two" }, async () => 0),
      (error) => error instanceof LeaseHeld && error.lease?.holder === "one",
    );
    const body = { new: head(1), lease: lease.claim };
    const { data } = await names.api.PUT("/v1/indexes/{address}", { params: { path: { address } }, body });
    return data?.status;
  });
  assert.equal(result, "updated");
  assert.equal((await names.record(address)).status?.payload["state"], "ready");
});

test("a lease is refreshed at a third of its duration while the work runs", { timeout }, async (context) => {
  const address = await ledger();
  const kept = refreshImmediately(context);
  await names.withLease(address, "index_lock", { holder: "one", ttlSeconds: 60 }, async (lease) => {
    let changes = 0;
    // The first is the creation, the second the lease.
    for await (const change of names.events({ after: 0, address: [address], concern: ["status"] })) {
      assert.equal(change.concern, "status");
      if (++changes === 6) break;
    }
    lease.check();
  });
  assert(kept.refreshes >= 4);
});

test("a lease that others take is lost and its pushes are rejected", { timeout }, async (context) => {
  const address = await ledger();
  let lost: Lease | undefined;
  refreshImmediately(context);
  const work = names.withLease(address, "index_lock", { holder: "one", ttlSeconds: 60 }, async (lease) => {
    lost = lease;
    // Another process with the same holder name takes the lease over.
    const body = { name: "index_lock", holder: "one", ttl_seconds: 60 };
    await names.api.PUT("/v1/leases/{address}", { params: { path: { address } }, body });
    const push = { new: head(1), lease: lease.claim };
    await assert.rejects(names.api.PUT("/v1/indexes/{address}", { params: { path: { address } }, body: push }), LeaseLost);
    if (!lease.signal.aborted) await once(lease.signal, "abort");
  });
  await assert.rejects(work, LeaseLost);
  assert(lost?.signal.aborted);
});

test("a lease that is waited for comes when it is free", async () => {
  const address = await ledger();
  let waiting: Promise<number> | undefined;
  const first = await names.withLease(address, "index_lock", { holder: "one" }, async (lease) => {
    waiting = names.withLease(address, "index_lock", { holder: "two", wait: 20 }, async (later) => later.token);
    return lease.token;
  });
  assert((await waiting!) > first);
});

test("a transaction moves all or none", async () => {
  const [one, two] = [await ledger(), await ledger()];
  const operations = [
    { op: "push_head" as const, address: one, expected: UNBORN, new: head(1) },
    { op: "push_head" as const, address: two, expected: head(9), new: head(10) },
  ];
  await assert.rejects(names.api.POST("/v1/transactions", { body: { operations } }), (error) => {
    assert(error instanceof TransactionRejected);
    assert.deepEqual(error.results.map((result) => result.status), ["passed", "conflict"]);
    return true;
  });
  assert.deepEqual((await names.record(one)).head, UNBORN);
});

/** Texts of numbers, and what they are read as. */
const NUMBERS: [string, string][] = [
  ...["0", "-0", "1", "-1", "1.5", "2147483648", "9007199254740991", "-9007199254740991", "0.1", "1e-7", "5e-324"].map((text) => [text, "number"]),
  ...["9007199254740992", "9007199254740993", "-9007199254740993", "8293847239847239847", "9223372036854775807", "9223372036854775808"].map((text) => [text, "bigint"]),
  ...["18446744073709551616", "123456789012345678901234567890123456789"].map((text) => [text, "bigint"]),
  ...["1e400", "-1e400", "1e-400", "0.12345678901234567890123456789", "9007199254740993.5", "1E400"].map((text) => [text, "object"]),
] as [string, string][];

test("every number of a payload is written as it was read", async () => {
  for (const [number, kind] of NUMBERS) {
    const payload = `{"id":${number},"list":[1,{"__proto__":${number}},"${number}"]}`;
    assert.equal(stringify(parse(payload)), payload);
    assert.equal(typeof parse(number), kind, number);
    // Through every way in which a payload comes and goes.
    const sent: string[] = [];
    const answers = [
      `{"address":"a:main","config":{"v":1,"payload":${payload}}}`,
      `{"type":"/conflict","status":409,"actual":{"v":1,"payload":${payload}}}`,
      `{"status":"updated"}`,
    ];
    const answer = async (request: Request) => {
      if (request.method !== "GET") sent.push(await request.text());
      const body = answers.shift()!;
      const status = body.includes('"status":409') ? 409 : 200;
      return new Response(body, { status, headers: { "content-type": "application/json; charset=utf-8" } });
    };
    const service = new Nameservice({ url: URL, fetch: answer });
    const read = (await service.record("a")).config!;
    const push = (stored: typeof read) => {
      const body = { expected: { v: stored.v }, new: { payload: { ...stored.payload!, changed: true } } };
      return service.api.PUT("/v1/configs/{address}", { params: { path: { address: "a" } }, body });
    };
    await assert.rejects(push(read), (error) => {
      assert(error instanceof Conflict);
      return stringify(error.actual) === `{"v":1,"payload":${payload}}`;
    });
    await push(read);
    const wanted = `{"expected":{"v":1},"new":{"payload":{${payload.slice(1, -1)},"changed":true}}}`;
    assert.deepEqual(sent, [wanted, wanted]);
    const event = `event: change\nid: 8\ndata: {"position":8,"payload":${payload}}\n\n`;
    const stream = new Nameservice({ url: URL, fetch: async () => new Response(event, { headers: { "content-type": "text/event-stream" } }) });
    for await (const change of stream.events({ after: 7 })) {
      assert.equal(stringify(change.payload), payload);
      break;
    }
  }
  // Other texts of one number are that number.
  for (const [text, number] of [["1.0", 1], ["1e2", 100], ["1E-7", 1e-7], ["0e0", 0], ["0.10", 0.1]] as const) assert.equal(parse(text), number);
  for (const text of ["", "{", "01", "1e", "[9007199254740993,]", "NaN"]) assert.throws(() => parse(text), SyntaxError);
  for (const odd of ["x", "", "1,2", "NaN"]) assert.throws(() => new JsonNumber(odd));
  for (const none of [Infinity, NaN]) assert.throws(() => stringify({ none }), TypeError);
  assert.throws(() => JSON.stringify(parse("[1e400]")), TypeError);
  assert.equal(stringify({ a: undefined, b: [undefined], c: new Date(0), d: "x\u0000" }), '{"b":[null],"c":"1970-01-01T00:00:00.000Z","d":"x\\u0000"}');
});

test("an id that no double holds survives a change of the config beside it", async () => {
  const address = await ledger();
  const url = `${URL}/v1/configs/${address}`;
  const stored = async () => (await fetch(`${URL}/v1/records/${address}`)).text();
  const body = '{"expected":{"v":0},"new":{"payload":{"snapshot":8293847239847239847}}}';
  await fetch(url, { method: "PUT", headers: { "content-type": "application/json" }, body });
  const { config } = await names.record(address);
  assert.equal(config?.payload?.["snapshot"], 8293847239847239847n);
  const changed = { expected: { v: 1 }, new: { payload: { ...config?.payload, other: 1 } } };
  await names.api.PUT("/v1/configs/{address}", { params: { path: { address } }, body: changed });
  assert.match(await stored(), /"snapshot":8293847239847239847[,}]/);
});

test("an answer that breaks off in its body is asked for again, and applied once", async () => {
  const address = await ledger();
  let cuts = 2;
  const send = async (request: Request) => {
    const response = await fetch(request);
    if (cuts-- <= 0) return response;
    await response.arrayBuffer();
    const broken = new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode('{"status":'));
        controller.error(new TypeError("terminated"));
      },
    });
    return new Response(broken, { status: response.status, headers: { "content-type": "application/json" } });
  };
  const { data } = await pushHead(new Nameservice({ url: URL, ...LONG, fetch: send }), address, UNBORN, 1);
  assert.equal(data?.status, "updated");
  assert.equal(data?.replayed, true);
});

test("a service that accepts and never answers is given up, and asked again", async () => {
  const address = await ledger();
  let silent = 1;
  const send = (request: Request) => {
    if (silent-- <= 0) return fetch(request);
    return new Promise<Response>((_, reject) => request.signal.addEventListener("abort", () => reject(request.signal.reason as Error)));
  };
  // Short for the request that is never answered alone: another that takes as long is repeated.
  const service = new Nameservice({ url: URL, fetch: send, timeout: 0.5, deadline: LONG.deadline });
  const { data } = await pushHead(service, address, UNBORN, 1);
  assert.equal(data?.status, "updated");
});

test("writes of Fluree's routes are sent once, however the service's URL is written", async () => {
  for (const base of ["https://example.com", "HTTPS://Example.COM:443/", "https://example.com/a/../b"]) {
    let sent = 0;
    const send = async () => {
      sent += 1;
      throw new TypeError("cut");
    };
    const service = new Nameservice({ url: base, fetch: send });
    await assert.rejects(service.api.POST("/fluree/nameservice/refs/{address}", { params: { path: { address: "mydb/init" } } }));
    assert.equal(sent, 1, base);
  }
});

test("writes are repeated whatever the path of the service is", async () => {
  for (const base of ["https://example.com/fluree/names", "https://example.com/a/fluree", "https://fluree/fluree/"]) {
    const sent: Request[] = [];
    const send = async (request: Request) => {
      sent.push(request);
      if (sent.length === 1) throw new TypeError("cut");
      return Response.json({ status: "updated" });
    };
    await pushHead(new Nameservice({ url: base, fetch: send }), "mydb", UNBORN, 1);
    assert.equal(sent.length, 2, base);
    assert.equal(new Set(sent.map((request) => request.headers.get("idempotency-key"))).size, 1);
    assert(sent[0]!.headers.get("idempotency-key"));
  }
});
