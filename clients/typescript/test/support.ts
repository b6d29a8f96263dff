/** What the tests have in common. */
import { createHash } from "node:crypto";
import type { TestContext } from "node:test";
import type { NameserviceOptions } from "../src/index.js";

/** Seconds, far longer than a sound service holds up a request, and a busy machine, too. */
export const LONG = { timeout: 60, deadline: 120 };
/** Milliseconds: a test that hangs fails under its name. */
export const timeout = 300_000;

/** Returns the content id of a text, or of a number as a text. */
export function cid(content: string | number): string {
  const digest = createHash("sha256").update(String(content)).digest();
  let text = "b";
  let bits = 0;
  let value = 0;
  for (const byte of Buffer.concat([Buffer.from([1, 0x55, 0x12, 0x20]), digest])) {
    value = (value << 8) | byte;
    bits += 8;
    for (; bits >= 5; bits -= 5) text += "abcdefghijklmnopqrstuvwxyz234567"[(value >>> (bits - 5)) & 31];
    value &= (1 << bits) - 1;
  }
  return bits ? text + "abcdefghijklmnopqrstuvwxyz234567"[(value << (5 - bits)) & 31] : text;
}

/** Options for three attempts: each takes a third of the call's deadline by the client's clock, which nothing else moves. */
export function threeAttempts(context: TestContext, send: (request: Request) => Promise<Response> = fetch): NameserviceOptions {
  let now = 0;
  context.mock.method(performance, "now", () => now);
  const timed = async (request: Request) => {
    try {
      return await send(request);
    } finally {
      now += (LONG.deadline * 1000) / 3;
    }
  };
  return { ...LONG, fetch: timed };
}

/**
 * Makes the refreshes of a lease of 60 seconds due immediately. Returns how many there were, and the timers that would end the lease, those
 * that were not cleared. The timers stay real, as `fetch` uses them, too.
 */
export function refreshImmediately(context: TestContext) {
  const [set, clear] = [setTimeout, clearTimeout];
  const lease = { refreshes: 0, expiries: new Map<unknown, () => void>() };
  context.mock.method(globalThis, "setTimeout", (work: () => void, milliseconds: number, ...rest: []) => {
    if (milliseconds === 20_000) lease.refreshes += 1;
    const timer = set(work, milliseconds === 20_000 ? 10 : milliseconds, ...rest);
    if (milliseconds > 20_000 && milliseconds <= 60_000) lease.expiries.set(timer, work);
    return timer;
  });
  context.mock.method(globalThis, "clearTimeout", (timer: NodeJS.Timeout) => {
    lease.expiries.delete(timer);
    clear(timer);
  });
  return lease;
}
