// The feed, live.

import { stringify } from './json.js';
import { html, useEffect, useNarrow, useNow, useRef, useState } from './lib.js';
import { older } from './live.js';
import { Address, Badge, Dialog, Failure, Json, duration } from './parts.js';
import { useStore } from './store.js';
import { VirtualList } from './virtual.js';

const CONCERNS = ['meta', 'head', 'index', 'status', 'config'];
const CHANGES = ['created', 'updated', 'reset', 'retracted', 'restored', 'purged'];
const COLOURS = { created: 'good', restored: 'good', reset: 'bad', purged: 'bad', retracted: 'off' };
const HEAD = ['Position', 'Time', 'Address', 'Concern', 'Change', 'Watermark', 'Value'];

export function Changes() {
  const store = useStore();
  const narrow = useNarrow();
  const [filter, setFilter] = useState({ text: '', kind: '', concern: '', change: '' });
  const [paused, setPaused] = useState(null);
  const [problem, setProblem] = useState(null);
  const [looked, setLooked] = useState(null);
  const asked = useRef(false);

  useEffect(() => {
    if (asked.current || store.position === 0 || store.changes.length > 200) return;
    asked.current = true;
    older().catch(setProblem);
  });

  const all = paused ?? store.changes;
  const shown = all.filter((change) => wanted(change, filter)).reverse();
  const text = (name) => (event) => setFilter({ ...filter, [name]: event.target.value });
  const select = (name, label, values) => html`<label>${label}
    <select value=${filter[name]} onChange=${text(name)}><option value="">all</option>
      ${values.map((value) => html`<option key=${value} value=${value}>${value}</option>`)}</select></label>`;
  const row = narrow ? narrowRow(setLooked) : wideRow(setLooked);
  const head = narrow
    ? html`<span role="columnheader">Change</span>`
    : HEAD.map((title) => html`<span role="columnheader" key=${title}>${title}</span>`);

  return html`<section aria-labelledby="title" class="page changes">
    <div class="page-head"><h1 id="title" tabindex="-1">Changes</h1><${Position} store=${store} /></div>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="grow">Address
        <input type="search" value=${filter.text} placeholder="part of it, or mydb:*" autocomplete="off" spellcheck="false"
          onInput=${text('text')} /></label>
      ${select('kind', 'Kind', ['ledger', 'graph_source'])} ${select('concern', 'Concern', CONCERNS)}
      ${select('change', 'Change', CHANGES)}
      <button type="button" aria-pressed=${paused !== null} onClick=${() => setPaused(paused ? null : [...store.changes])}>
        ${paused ? `Resume (${store.position - (paused.at(-1)?.position ?? 0)} new)` : 'Pause'}</button>
      <button type="button" onClick=${() => older().catch(setProblem)}>Earlier</button>
    </form>
    <${Failure} problem=${problem} />
    <${VirtualList} items=${shown} keyOf=${(change) => change.position} row=${row} height=${narrow ? 62 : 38} head=${head}
      label="Changes, newest first" empty="No change matches." />
    ${looked && html`<${Dialog} title=${`Change ${looked.position}`} onClose=${() => setLooked(null)}>
      <p><${Address} address=${looked.address} /></p><${Json} value=${looked} /><//>`}
  </section>`;
}

function Position({ store }) {
  const now = useNow();
  const heard = store.heardAt ? Math.max(0, (now - store.heardAt) / 1000) : null;
  const lag = store.lag;
  return html`<dl class="facts position">
    <div><dt>Position</dt><dd class="number" data-test="position">${store.position}</dd></div>
    <div><dt>Write to feed</dt><dd>${lag ? milliseconds(lag.feed) : '–'}</dd></div>
    <div><dt>Feed to here</dt><dd data-test="lag">${lag ? milliseconds(lag.here) : '–'}</dd></div>
    <div><dt>Last event</dt><dd>${heard === null ? '–' : heard < 2 ? 'now' : `${duration(heard)} ago`}</dd></div>
  </dl>`;
}

const milliseconds = (value) => (value < 10_000 ? `${Math.round(value)} ms` : duration(value / 1000));

function wanted(change, { text, kind, concern, change: how }) {
  if (kind && change.kind !== kind) return false;
  if (concern && change.concern !== concern) return false;
  if (how && change.change !== how) return false;
  if (!text) return true;
  if (!/[*?]/.test(text)) return change.address.toLowerCase().includes(text.toLowerCase());
  const pattern = text.replace(/[.+^${}()|[\]\\]/g, '\\$&').replace(/\*+/g, '.*').replace(/\?/g, '.');
  return new RegExp(`^${pattern}$`, 'su').test(change.address);
}

/** The effect of a change, in one line. */
export function brief({ payload, payload_omitted, concern }) {
  if (payload_omitted) return 'large';
  if (payload === undefined || payload === null) return '';
  if (concern === 'head' || concern === 'index') return String(payload.id ?? 'none');
  if (concern === 'status') return String(payload.state ?? '');
  return stringify(payload);
}

const moved = (change) =>
  change.previous === undefined ? String(change.watermark) : `${change.previous} → ${change.watermark}`;

const time = (text) => text.slice(11, 19);

const wideRow = (look) => (change) => html`
  <span role="cell" class="number">${change.position}</span>
  <span role="cell"><time datetime=${change.occurred_at} title=${change.occurred_at}>${time(change.occurred_at)}</time></span>
  <span role="cell" class="grow" title=${change.address}><${Address} address=${change.address} /></span>
  <span role="cell">${change.concern}</span>
  <span role="cell"><${Badge} kind=${COLOURS[change.change] ?? 'busy'}>${change.change}<//></span>
  <span role="cell" class="number">${moved(change)}</span>
  <span role="cell" class="value"><button type="button" class="quiet" onClick=${() => look(change)}
    title="Show the whole change"><bdi>${brief(change) || '…'}</bdi></button></span>`;

const narrowRow = (look) => (change) => html`<span role="cell" class="stack">
  <span class="line"><${Address} address=${change.address} /></span>
  <span class="line small"><button type="button" class="quiet" onClick=${() => look(change)}
    title="Show the whole change">${change.position}</button>
    ${change.concern} <${Badge} kind=${COLOURS[change.change] ?? 'busy'}>${change.change}<//> ${moved(change)}</span>
</span>`;
