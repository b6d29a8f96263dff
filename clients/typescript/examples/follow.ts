/** Keeps a copy of all heads, from a snapshot on: follow.js [CHANGES], which ends after so many changes */
import { Nameservice } from "../src/index.js";

const names = new Nameservice();
let changes = Number(process.argv[2] ?? Infinity);
const heads = new Map<string, unknown>();

for await (const event of names.follow({ concern: ["head"] })) {
  if (event.kind === "snapshot") {
    // The first, or another one: the program was away for longer than the feed's retention, or a backup was restored.
    heads.clear();
    for (const record of event.records) heads.set(record.address, record.head);
    console.log(`${heads.size} records at position ${event.cursor}`);
  } else {
    heads.set(event.change.address, event.change.payload);
    console.log(`${event.change.position} ${event.change.address} t ${event.change.watermark}`);
    changes -= 1;
  }
  if (changes <= 0) break;
}
