// The history of a record, and the difference of two of its entries.

import { call, inPath } from './api.js';
import { differences } from './difference.js';
import { html, useEffect, useRef, useState } from './lib.js';
import { Differences, Failure, Json, Time } from './parts.js';
import { setParams, usePlace } from './place.js';
import { author, brief, deed, markOf } from './sentence.js';
import { follow } from './store.js';

/** How many entries are read together. */
const PAGE = 200;
const CONCERNS = ['meta', 'head', 'index', 'status', 'config'];

export function History({ address }) {
  const { params } = usePlace();
  const concern = params.get('concern') ?? '';
  const picked = params.getAll('compare').map(Number).filter((position) => position > 0).slice(-2);
  // Newest first, as far as they have been read; `before` is where the next page begins.
  const [{ entries, before, problem }, set] = useState({ entries: null, before: undefined, problem: null });
  const older = useRef(null);

  useEffect(() => {
    const controller = new AbortController();
    const read = async (from) => {
      const query = new URLSearchParams({ order: 'newest', limit: PAGE, ...(from && { before: from }) });
      try {
        const page = await call('GET', `history/${inPath(address)}?${query}`, { signal: controller.signal });
        const newest = page.changes[0]?.position ?? 0;
        // The first page begins anew: of what is known, it leaves what has happened since.
        const known = (now) => (from ? now.entries : (now.entries ?? []).filter((entry) => entry.position > newest));
        set((now) => ({ entries: merged(known(now), page.changes), before: page.position, problem: null }));
      } catch (error) {
        if (error.name === 'AbortError') return;
        set((now) => ({ ...now, entries: now.entries ?? [], problem: error.status === 404 ? null : error }));
      }
    };
    older.current = read;
    // Followed from before the first page is read, so that nothing is missed in between; the service knows what was missed.
    const unfollow = follow(address, (change) => {
      if (change) set((now) => ({ ...now, entries: merged(now.entries ?? [], [change]) }));
      else read();
    });
    read();
    return () => {
      controller.abort();
      unfollow();
    };
  }, [address]);

  const all = entries ?? [];
  const wanted = concern ? all.filter((entry) => entry.concern === concern) : all;
  const pick = (position) =>
    setParams({ compare: picked.includes(position) ? picked.filter((other) => other !== position) : [...picked, position].slice(-2) });
  const two = [...picked].sort((a, b) => a - b).map((position) => all.find((entry) => entry.position === position)).filter(Boolean);

  return html`<section class="card history" aria-label="History">
    <div class="card-head"><h2>History</h2>
      <label>Concern <select value=${concern} onChange=${(event) => setParams({ concern: event.target.value })}>
        <option value="">all</option>
        ${CONCERNS.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select></label></div>
    <${Failure} problem=${problem} />
    ${two.length === 2
      ? html`<${Difference} key=${picked.join()} before=${two[0]} after=${two[1]} onClose=${() => setParams({ compare: [] })} />`
      : html`<p class="small">${two.length === 1 ? 'Choose another entry to see how they differ.' : 'Choose two entries to see how they differ.'}</p>`}
    <ol class="sentences entries">${wanted.map(
      (entry) => html`<li key=${entry.position} class=${picked.includes(entry.position) ? 'picked' : ''}>
        <input type="checkbox" aria-label=${`Compare entry ${entry.position}`} checked=${picked.includes(entry.position)} onChange=${() => pick(entry.position)} />
        <span class="mark ${markOf(entry)}" aria-hidden="true"></span>
        <span class="what"><bdi>${deed(entry)}</bdi>${author(entry) && html` by <strong class="by"><bdi>${author(entry)}</bdi></strong>`}
          <small class="detail"><bdi>${brief(entry)}</bdi></small></span>
        <small><${Time} time=${entry.occurred_at} /><span class="number position" title="Position in the feed">#${entry.position}</span></small>
      </li>`,
    )}</ol>
    ${entries === null && !problem && html`<p role="status">Loading …</p>`}
    ${entries && wanted.length === 0 && html`<p class="none">The feed holds no changes of this record.</p>`}
    ${before && html`<button type="button" onClick=${() => older.current?.(before)}>Show older entries</button>`}
  </section>`;
}

/** Entries of both, newest first, each once. */
function merged(entries, more) {
  const all = new Map([...entries, ...more].map((entry) => [entry.position, entry]));
  return [...all.values()].sort((a, b) => b.position - a.position);
}

function Difference({ before, after, onClose }) {
  const ref = useRef();
  // In sight, wherever in the history the second entry was chosen.
  useEffect(() => ref.current.scrollIntoView({ block: 'nearest' }), []);
  const value = (entry) => ({ watermark: entry.watermark, value: entry.payload ?? null });
  return html`<section class="difference" aria-label="Difference" ref=${ref}>
    <div class="card-head"><h3>From #${before.position} (${before.concern}) to #${after.position} (${after.concern})</h3>
      <button type="button" class="small" onClick=${onClose}>Compare no more</button></div>
    <${Differences} rows=${differences(value(before), value(after))} before=${`#${before.position}`} after=${`#${after.position}`} />
    <details><summary>Both values</summary><div class="compared">
      <div><h4>#${before.position}</h4><${Json} value=${value(before)} /></div>
      <div><h4>#${after.position}</h4><${Json} value=${value(after)} /></div></div></details>
  </section>`;
}
