/** The code of README.md, run in its order against a service: NAMESERVICE_URL. The cases are those of clients/python/tests/test_readme.py. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { pathToFileURL } from "node:url";
import { Nameservice, type Change, type Snapshot } from "../src/index.js";
import { LONG, cid, timeout } from "./support.js";

const URL_OF_SERVICE = process.env["NAMESERVICE_URL"]!;
const names = new Nameservice({ url: URL_OF_SERVICE, ...LONG });
const README = readFileSync(new URL("../../README.md", import.meta.url), "utf8");

/** The blocks of the README, for a ledger of their own, in one program: what it uses and does not have is global. */
function readme(context: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), "readme-"));
  const before = process.cwd();
  // Where the cursor is kept.
  process.chdir(directory);
  context.after(() => {
    process.chdir(before);
    rmSync(directory, { recursive: true });
  });
  const name = `typescript/${randomUUID()}`;
  // What each commit follows.
  const parents = new Map<string, string | null>();
  const commitOn = (parent: string | null) => {
    const commit = cid(`${parent} ${parents.size}`);
    parents.set(commit, parent);
    return commit;
  };
  Object.assign(globalThis, { LONG, parent: cid(41), commitOn });
  let text = README;
  const replacements = [
    ['"nameservice-client"', JSON.stringify(new URL("../src/index.js", import.meta.url).href)],
    ['url: "https://names.example.com", token', `url: "${URL_OF_SERVICE}", ...LONG`],
    ["const names = ", "const names = globalThis.names = "],
    ["mydb", name],
  ] as const;
  for (const [shown, run] of replacements) {
    assert(text.includes(shown), shown);
    text = text.replaceAll(shown, run);
  }
  const [write, follow, lease, ...others] = [...text.matchAll(/^```ts\n(.*?)^```/gms)].map((block) => block[1]!);
  assert(write && follow && lease && others.length === 0);
  let runs = 0;
  const run = async (block: string, used: object = {}) => {
    Object.assign(globalThis, used);
    const file = join(directory, `${++runs}.mjs`);
    writeFileSync(file, block);
    await import(pathToFileURL(file).href);
  };
  return { name, parents, commitOn, write, follow, lease, run };
}

const push = (address: string, t: number) =>
  names.api.PUT("/v1/heads/{address}", { params: { path: { address } }, body: { new: { id: cid(t), t } } });

test("a head that another writer moves meanwhile keeps the commits of both", { timeout }, async (context) => {
  const { name, parents, commitOn, write, run } = readme(context);
  let other: string | undefined;
  const overtaken = async (parent: string | null) => {
    if (!other) {
      other = commitOn(parent);
      const body = { expected: { id: null, t: 0 }, new: { id: other, t: 1 } };
      await names.api.PUT("/v1/heads/{address}", { params: { path: { address: name } }, body });
    }
    return commitOn(parent);
  };
  await run(write, { commitOn: overtaken });
  const { head } = await names.record(name);
  assert.equal(head?.t, 2);
  assert.equal(parents.get(head!.id!), other);
  assert.equal(parents.get(other!), null);
});

test("a reader that crashes resumes with what it has not handled, and no snapshot", { timeout }, async (context) => {
  const { name, write, follow, run } = readme(context);
  await run(write);
  // What the pattern leaves out.
  await names.api.POST("/v1/ledgers", { body: { address: `${name}2` } });
  const seen: unknown[] = [];
  const replaceAll = async (records: Snapshot["records"]) => {
    seen.push(records.map((record) => record.address));
    for (const t of [2, 3]) await push(name, t);
  };
  for (const t of [3, 4]) {
    const apply = (change: Change) => {
      seen.push(change.watermark);
      if (change.watermark === t) throw new Error("crash");
    };
    await assert.rejects(run(follow, { replaceAll, apply }), /crash/);
    await push(name, t + 1);
  }
  assert.deepEqual(seen, [[`${name}:main`], 2, 3, 3, 4]);
});

test("what is built under a lease is published", { timeout }, async (context) => {
  const { name, write, lease, run } = readme(context);
  await run(write);
  await run(lease, { build: () => ({ id: cid(1), t: 1 }) });
  assert.equal((await names.record(name)).index?.id, cid(1));
});
