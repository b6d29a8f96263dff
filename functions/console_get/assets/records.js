// All records: search as you type, filters, live values.

import { creations } from './actions.js';
import { call } from './api.js';
import { Form } from './forms.js';
import { html, useEffect, useNarrow, useRef, useState } from './lib.js';
import { MOST_RECORDS } from './live.js';
import { Address, Badge, Countdown, StateBadge, toRecord } from './parts.js';
import { leaseOf, stateOf, useStore } from './store.js';
import { VirtualList } from './virtual.js';

/** Kept while the user looks at a record. */
const kept = { text: '', kind: '', state: '', type: '', retracted: false, leased: false };

/** The pause in typing after which the service is asked. */
const ASK_AFTER = 150;
const NOTHING = new Set();
/** Whether the service has a search; asked for with the first word. */
let hasSearch = null;

/** Addresses that the service finds for a text: by type, state and configuration too. */
function useFound(text) {
  const [found, setFound] = useState({ text: '', addresses: NOTHING });
  useEffect(() => {
    const words = text.trim().split(/\s+/);
    if (words[0] === '' || words.length > 8 || text.length > 80) return undefined;
    const controller = new AbortController();
    const { signal } = controller;
    const timer = setTimeout(async () => {
      try {
        hasSearch ??= (await call('GET', 'health', { signal })).capabilities?.search === true;
        if (!hasSearch) return;
        const query = new URLSearchParams({ q: text, limit: '1000' });
        const { hits } = await call('GET', `search?${query}`, { signal });
        setFound({ text, addresses: new Set(hits.map((hit) => hit.address)) });
      } catch {
        // The list is narrowed by what the console has.
      }
    }, ASK_AFTER);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [text]);
  return found.text === text ? found.addresses : NOTHING;
}

const HEAD = ['Address', 'Kind', 'State', 'Head t', 'Index t', 'Config v', 'Lease'];

export function Records() {
  const store = useStore();
  const narrow = useNarrow();
  const [filter, setFilter] = useState(kept);
  const [creating, setCreating] = useState(null);
  const search = useRef();
  const change = (part) => setFilter((now) => Object.assign(kept, { ...now, ...part }) && { ...kept });

  useEffect(() => {
    const slash = (event) => {
      if (event.key !== '/' || event.target.closest('input, textarea, select, dialog')) return;
      event.preventDefault();
      search.current?.focus();
    };
    addEventListener('keydown', slash);
    return () => removeEventListener('keydown', slash);
  }, []);

  const created = (answer) => {
    setCreating(null);
    if (answer) location.hash = toRecord(answer.address);
  };
  const { states, types } = known(store);
  const shown = matching(store, filter, useFound(filter.text));

  const row = (record) => (narrow ? narrowRow(record) : wideRow(record));
  const head = narrow
    ? html`<span role="columnheader">Record</span>`
    : HEAD.map((title) => html`<span role="columnheader" key=${title}>${title}</span>`);
  const note = store.complete
    ? `${shown.length} of ${store.order.length} records`
    : store.order.length >= MOST_RECORDS
      ? `${shown.length} of the first ${store.order.length} records: there are more`
      : `${store.order.length} records read so far …`;

  return html`<section aria-labelledby="title" class="page records">
    <div class="page-head"><h1 id="title" tabindex="-1">Records</h1><p class="count" role="status">${note}</p>
      <div class="actions" role="group" aria-label="Create">
        <button type="button" onClick=${() => setCreating('ledger')}>New ledger …</button>
        <button type="button" onClick=${() => setCreating('graph_source')}>New graph source …</button>
      </div></div>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="grow">Search
        <input ref=${search} type="search" value=${filter.text} placeholder="part of an address, type, state …  ( / )" autocomplete="off"
          spellcheck="false" onInput=${(event) => change({ text: event.target.value })} /></label>
      <label>Kind
        <select value=${filter.kind} onChange=${(event) => change({ kind: event.target.value })}>
          <option value="">all</option><option value="ledger">ledgers</option><option value="graph_source">graph sources</option>
        </select></label>
      <${Choice} label="State" value=${filter.state} values=${states} onChoose=${(state) => change({ state })} />
      <${Choice} label="Type" value=${filter.type} values=${types} onChoose=${(type) => change({ type })} />
      <label class="check"><input type="checkbox" checked=${filter.leased}
        onChange=${(event) => change({ leased: event.target.checked })} /> leased</label>
      <label class="check"><input type="checkbox" checked=${filter.retracted}
        onChange=${(event) => change({ retracted: event.target.checked })} /> retracted too</label>
    </form>
    <${VirtualList} items=${shown} keyOf=${(record) => record.address} row=${row} height=${narrow ? 62 : 38} head=${head}
      label="Records" empty=${store.complete ? 'No record matches.' : 'Loading …'} />
    ${creating && html`<${Form} key=${creating} action=${creations[creating]} title=${creations[creating].title} onClose=${created} />`}
  </section>`;
}

const Choice = ({ label, value, values, onChoose }) => html`<label>${label}
  <select value=${value} onChange=${(event) => onChoose(event.target.value)}>
    <option value="">all</option>
    ${(value && !values.includes(value) ? [value, ...values] : values).map(
      (name) => html`<option key=${name} value=${name}>${name}</option>`,
    )}
  </select></label>`;

/** The states and types that occur. */
function known(store) {
  const [states, types] = [new Set(), new Set()];
  for (const record of store.records.values()) {
    states.add(stateOf(record));
    if (record.source_type) types.add(record.source_type);
  }
  return { states: [...states].sort(), types: [...types].sort() };
}

function matching(store, filter, found) {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = [];
  for (const address of store.order) {
    const record = store.records.get(address);
    if (record.retracted && !filter.retracted && filter.state !== 'retracted') continue;
    if (filter.kind && record.kind !== filter.kind) continue;
    if (filter.state && stateOf(record) !== filter.state) continue;
    if (filter.type && record.source_type !== filter.type) continue;
    if (filter.leased && !leaseOf(record)) continue;
    if (words.length > 0 && !found.has(address)) {
      const lower = address.toLowerCase();
      if (!words.every((word) => lower.includes(word))) continue;
    }
    wanted.push(record);
  }
  return wanted;
}

const kindOf = (record) => (record.kind === 'ledger' ? 'ledger' : (record.source_type ?? 'graph source'));
const behind = (record) => (record.head?.t ?? 0) - (record.index?.t ?? 0);

function wideRow(record) {
  const lease = leaseOf(record);
  const late = behind(record);
  return html`
    <span role="cell" class="grow" title=${record.address}><${Address} address=${record.address} /></span>
    <span role="cell" title=${kindOf(record)}><bdi>${kindOf(record)}</bdi></span>
    <span role="cell"><${StateBadge} record=${record} /></span>
    <span role="cell" class="number">${String(record.head?.t ?? '–')}</span>
    <span role="cell" class="number">${String(record.index?.t ?? '–')}${record.head && late > 0 ? html` <small>−${late}</small>` : ''}</span>
    <span role="cell" class="number">${String(record.config?.v ?? '–')}</span>
    <span role="cell">${lease ? html`<${Countdown} expiresAt=${lease.expires_at} /> · <bdi title=${`${lease.name}, ${lease.holder}`}>${lease.holder}</bdi>` : ''}</span>`;
}

function narrowRow(record) {
  return html`<span role="cell" class="stack">
    <span class="line"><${Address} address=${record.address} /></span>
    <span class="line small"><${StateBadge} record=${record} /> <bdi>${kindOf(record)}</bdi>
      ${record.head ? ` · head ${record.head.t}` : ''} · index ${record.index?.t ?? '–'}
      ${leaseOf(record) ? html` · <${Badge} kind="busy">leased<//>` : ''}</span>
  </span>`;
}
