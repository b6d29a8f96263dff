/** Keeps a copy of all heads, from a snapshot on: follow.js [CHANGES], which ends after so many changes */
import { Nameservice, PositionExpired } from "../src/index.js";

const names = new Nameservice();
let changes = Number(process.argv[2] ?? Infinity);

for (;;) {
  try {
    const { records, position } = await names.snapshot();
    const heads = new Map(records.map((record) => [record.address, record.head as unknown]));
    console.log(`${heads.size} records at position ${position}`);
    if (changes === 0) break;
    for await (const change of names.events({ after: position, concern: ["head"] })) {
      heads.set(change.address, change.payload);
      console.log(`${change.position} ${change.address} t ${change.watermark}`);
      if (--changes === 0) break;
    }
    break;
  } catch (error) {
    // The program was away for longer than the feed's retention: begin again with a snapshot.
    if (!(error instanceof PositionExpired)) throw error;
  }
}
