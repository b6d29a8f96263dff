/** Commits a text and moves the head to it, by compare-and-set: push.js ADDRESS TEXT */
import { createHash } from "node:crypto";
import { Nameservice, UnknownRecord, type Head } from "../src/index.js";

const [address, text] = process.argv.slice(2);
if (!address || !text) throw new Error("push.js ADDRESS TEXT");

/** Makes a commit on the stored head: again after each conflict, since a commit has the id of the one that it follows. */
function commit(stored: Head) {
  const t = stored.t + 1;
  const content = JSON.stringify({ previous: stored.id, t, text });
  // Store the content here, where readers look for it: it has to be there before its id is pushed.
  const digest = createHash("sha256").update(content).digest();
  return { id: base32(Buffer.concat([Buffer.from([1, 0x55, 0x12, 0x20]), digest])), t };
}

/** Returns the content id of these bytes in text. */
function base32(bytes: Buffer): string {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  const letters = bits.match(/.{1,5}/g)!.map((five) => "abcdefghijklmnopqrstuvwxyz234567"[parseInt(five.padEnd(5, "0"), 2)]);
  return `b${letters.join("")}`;
}

try {
  const head = await new Nameservice().updateHead(address, commit);
  console.log(`${address} is at t ${head.t}`);
} catch (error) {
  if (!(error instanceof UnknownRecord)) throw error;
  console.error(`there is no ledger ${address}: create it with POST /v1/ledgers`);
  process.exitCode = 1;
}
