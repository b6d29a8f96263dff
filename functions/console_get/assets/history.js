// The history of a record, and the difference of two of its entries.

import { call, inPath } from './api.js';
import { brief } from './changes.js';
import { differences } from './difference.js';
import { html, useEffect, useMemo, useState } from './lib.js';
import { Badge, Differences, Failure, Json } from './parts.js';
import { useStore } from './store.js';

/** How many entries are read together. */
const PAGE = 200;

export function History({ address }) {
  const store = useStore();
  // Newest first, as far as they have been read; `before` is where the next page begins.
  const [{ entries, before, problem }, set] = useState({ entries: null, before: undefined, problem: null });
  const [concern, setConcern] = useState('');
const [picked, setPicked] = useState([]);

  const read = async (known, from, signal) => {
    const query = new URLSearchParams({ order: 'newest', limit: PAGE, ...(from && { before: from }) });
    try {
      const page = await call('GET', `history/${inPath(address)}?${query}`, { signal });
      set({ entries: [...known, ...page.changes], before: page.position, problem: null });
    } catch (error) {
      if (error.name !== 'AbortError') set({ entries: known, before: from, problem: error.status === 404 ? null : error });
    }
  };
  useEffect(() => {
    const controller = new AbortController();
    setPicked([]);
    read([], undefined, controller.signal);
    return () => controller.abort();
  }, [address]);

  // What has happened since comes from the feed.
  const all = useMemo(() => {
    if (!entries) return [];
    const last = entries[0]?.position ?? 0;
    const since = store.changes.filter((change) => change.address === address && change.position > last);
    return [...since.reverse(), ...entries];
  }, [entries, store.changes.length, store.position, address]);

  const wanted = all.filter((entry) => !concern || entry.concern === concern);
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
      <tbody>${wanted.map(
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
    ${entries && wanted.length === 0 && html`<p class="none">The feed holds no changes of this record.</p>`}
    ${before && html`<button type="button" onClick=${() => read(entries, before)}>Show older entries</button>`}
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
