// The history of a record, and the difference of two of its entries.

import { call, inPath } from './api.js';
import { brief } from './changes.js';
import { differences } from './difference.js';
import { html, useEffect, useMemo, useState } from './lib.js';
import { Badge, Differences, Failure, Json } from './parts.js';
import { useStore } from './store.js';

/** How much of a history is read. */
const MOST = 5000;
const SHOWN = 100;

export function History({ address }) {
  const store = useStore();
  const [{ entries, problem }, set] = useState({ entries: null, problem: null });
  const [concern, setConcern] = useState('');
  const [shown, setShown] = useState(SHOWN);
  const [picked, setPicked] = useState([]);

  useEffect(() => {
    const controller = new AbortController();
    const read = async () => {
      const all = [];
      let after = 0;
      do {
        const query = new URLSearchParams({ after, limit: 1000 });
        const page = await call('GET', `history/${inPath(address)}?${query}`, { signal: controller.signal });
        all.push(...page.changes);
        after = page.position;
      } while (after && all.length < MOST);
      set({ entries: all, problem: null });
    };
    setPicked([]);
    read().catch((error) => {
      if (error.name === 'AbortError') return;
      set({ entries: [], problem: error.status === 404 ? null : error });
    });
    return () => controller.abort();
  }, [address]);

  // What has happened since comes from the feed.
  const all = useMemo(() => {
    if (!entries) return [];
    const last = entries.at(-1)?.position ?? 0;
    return [...entries, ...store.changes.filter((change) => change.address === address && change.position > last)];
  }, [entries, store.changes.length, store.position, address]);

  const wanted = all.filter((entry) => !concern || entry.concern === concern).reverse();
  const pick = (position) =>
    setPicked((now) => (now.includes(position) ? now.filter((other) => other !== position) : [...now, position].slice(-2)));
  const two = [...picked].sort((a, b) => a - b).map((position) => all.find((entry) => entry.position === position));

  return html`<section class="card" aria-label="History">
    <div class="card-head"><h2>History</h2>
      <label>Concern <select value=${concern} onChange=${(event) => setConcern(event.target.value)}>
        <option value="">all</option>
        ${['meta', 'head', 'index', 'status', 'config'].map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select></label></div>
    <${Failure} problem=${problem} />
    <p id="history-help" class="small">Choose two entries to see how they differ.</p>
    <div class="scroll wide" tabindex="0" role="group" aria-label="Entries of the history"><table class="history" aria-describedby="history-help">
      <thead><tr><th scope="col">Compare</th><th scope="col">Position</th><th scope="col">Time</th><th scope="col">Concern</th>
        <th scope="col">Change</th><th scope="col">Watermark</th><th scope="col">Value</th></tr></thead>
      <tbody>${wanted.slice(0, shown).map(
        (entry) => html`<tr key=${entry.position} class=${picked.includes(entry.position) ? 'picked' : ''}>
          <td><input type="checkbox" aria-label=${`Compare entry ${entry.position}`} checked=${picked.includes(entry.position)}
            onChange=${() => pick(entry.position)} /></td>
          <td class="number">${entry.position}</td>
          <td><time datetime=${entry.occurred_at} title=${entry.occurred_at}>${entry.occurred_at.slice(0, 19).replace('T', ' ')}</time></td>
          <td>${entry.concern}</td><td><${Badge} kind="plain">${entry.change}<//></td>
          <td class="number">${entry.previous === undefined ? '' : `${entry.previous} → `}${entry.watermark}</td>
          <td class="value"><bdi>${brief(entry)}</bdi></td>
        </tr>`,
      )}</tbody></table></div>
    ${entries && wanted.length === 0 && html`<p class="none">The feed has nothing of it.</p>`}
    ${wanted.length > shown && html`<button type="button" onClick=${() => setShown(shown + SHOWN)}>Show more</button>`}
    ${two.length === 2 && two.every(Boolean) && html`<${Difference} before=${two[0]} after=${two[1]} />`}
  </section>`;
}

function Difference({ before, after }) {
  const value = (entry) => ({ watermark: entry.watermark, value: entry.payload ?? null });
  return html`<section class="difference" aria-label="Difference">
    <h3>From ${before.position} (${before.concern}) to ${after.position} (${after.concern})</h3>
    <${Differences} rows=${differences(value(before), value(after))} />
    <details><summary>Both values</summary><div class="compared">
      <div><h4>${before.position}</h4><${Json} value=${value(before)} /></div>
      <div><h4>${after.position}</h4><${Json} value=${value(after)} /></div></div></details>
  </section>`;
}
