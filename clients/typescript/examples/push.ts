/** Moves a head by compare-and-set: push.js ADDRESS CONTENT_ID */
import { Nameservice, UnknownRecord } from "../src/index.js";

const [address, commit] = process.argv.slice(2);
if (!address || !commit) throw new Error("push.js ADDRESS CONTENT_ID");
try {
  const head = await new Nameservice().updateHead(address, (stored) => ({ id: commit, t: stored.t + 1 }));
  console.log(`${address} is at t ${head.t}`);
} catch (error) {
  if (!(error instanceof UnknownRecord)) throw error;
  console.error(`there is no ledger ${address}: create it with POST /v1/ledgers`);
  process.exitCode = 1;
}
