/** What the tests have in common. */
import type { TestContext } from "node:test";
import type { NameserviceOptions } from "../src/index.js";

/** Seconds, far longer than a sound service holds up a request, and a busy machine, too. */
export const LONG = { timeout: 60, deadline: 120 };
/** Milliseconds: a test that hangs fails under its name. */
export const timeout = 300_000;

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
