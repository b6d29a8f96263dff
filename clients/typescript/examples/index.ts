/** Works under a lease: index.js ADDRESS. What it publishes is rejected once another indexer has the lease. */
import { LeaseHeld, Nameservice } from "../src/index.js";

const address = process.argv[2];
if (!address) throw new Error("index.js ADDRESS");
const names = new Nameservice();
const { head, index } = await names.record(address);
if (!head?.id || !index || head.t <= index.t) {
  console.log(`the index of ${address} is up to date`);
} else {
  try {
    await names.withLease(address, "index_lock", { ttlSeconds: 60, targetT: head.t }, async (lease) => {
      // Build the index here, pass lease.signal to what can be cancelled, and call lease.check() between the steps.
      const body = { new: { id: head.id, t: head.t }, lease: lease.claim };
      await names.api.PUT("/v1/indexes/{address}", { params: { path: { address } }, body });
      console.log(`indexed ${address} to t ${head.t} under token ${lease.token}`);
    });
  } catch (error) {
    if (!(error instanceof LeaseHeld)) throw error;
    console.error(`${error.lease?.holder} is at it`);
    process.exitCode = 1;
  }
}
