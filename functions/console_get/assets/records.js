// All records: search as you type, filters, as a list in any order or as a tree, live values. All that is chosen is in the address of the page.

import { creations } from './actions.js';
import { call, getRecord } from './api.js';
import { Form } from './forms.js';
import { html, useEffect, useMemo, useNarrow, useNow, useRef, useState } from './lib.js';
import { MOST_RECORDS } from './live.js';
import { Menu } from './menu.js';
import { Address, Ago, Badge, Countdown, Icon, StateBadge } from './parts.js';
import { setParams, toRecord, usePlace } from './place.js';
import { beforeReading, lagOf, leaseOf, stateOf, takeRecord, useStore } from './store.js';
import { natural } from './order.js';
import { rowsOf } from './tree.js';
import { VirtualList } from './virtual.js';

/** The pause in typing after which the service is asked. */
const ASK_AFTER = 150;
/** How many records that the browser does not hold are read for one search. */
const READ_FOUND = 100;
/** A search opens the folders of a tree with up to this many records. */
const OPEN_FOUND = 200;
const NOTHING = new Set();
/** Whether the service has a search; asked for with the first word. */
let hasSearch = null;

/** Addresses that the service finds for a text: by type, state and configuration too, and beyond those that the browser holds. */
function useFound(text, store) {
  const [found, setFound] = useState({ text: '', addresses: NOTHING });
  useEffect(() => {
    const words = text.trim().split(/\s+/);
    if (words[0] === '' || words.length > 8 || text.length > 80) return undefined;
    const controller = new AbortController();
    const { signal } = controller;
    const timer = setTimeout(async () => {
      try {
        hasSearch ??= (await call('GET', 'health', { signal })).capabilities?.search === true;
        const addresses = await (hasSearch ? searched(text, signal) : store.complete ? [] : begun(words[0], signal));
        const unknown = addresses.filter((address) => !store.records.has(address)).slice(0, READ_FOUND);
        await Promise.all(unknown.map((address) => take(address, signal)));
        if (!signal.aborted) setFound({ text, addresses: new Set(addresses) });
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

async function searched(text, signal) {
  const { hits } = await call('GET', `search?${new URLSearchParams({ q: text, limit: '1000' })}`, { signal });
  return hits.map((hit) => hit.address);
}

/** Without a search, a service with more records than a browser holds finds them by how their addresses begin. */
async function begun(prefix, signal) {
  const { records } = await call('GET', `records?${new URLSearchParams({ prefix, limit: String(READ_FOUND) })}`, { signal });
  return records.map((record) => record.address);
}

async function take(address, signal) {
  const moment = beforeReading();
  try {
    takeRecord(address, await getRecord(address, { signal }), moment);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
  }
}

const kindOf = (record) => (record.kind === 'ledger' ? 'ledger' : (record.source_type ?? 'graph source'));

/** What a list can be sorted by: the key of each record, a text or a number. The address is the order of the store. */
const SORTS = {
  address: null,
  kind: kindOf,
  state: stateOf,
  head: (record) => record.head?.t ?? -1,
  behind: lagOf,
  config: (record) => record.config?.v ?? 0,
  updated: (record) => Date.parse(record.updated_at) || 0,
  lease: (record) => leaseOf(record)?.expires_at ?? Infinity,
};

/** The records in the order of their keys, which are made once each. */
function sorted(records, { sort, isDescending }) {
  const keyOf = SORTS[sort];
  let order = records;
  if (keyOf) {
    const keyed = records.map((record) => [keyOf(record), record]);
    keyed.sort(typeof keyed[0]?.[0] === 'string' ? (a, b) => natural(a[0], b[0]) : (a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
    order = keyed.map(([, record]) => record);
  }
  return isDescending ? [...order].reverse() : order;
}

const COLUMNS = [
  ['address', 'Address'],
  ['kind', 'Kind'],
  ['state', 'State'],
  ['head', 'Head'],
  ['behind', 'Index'],
  ['config', 'Config'],
  ['updated', 'Updated'],
  ['lease', 'Lease'],
];
/** Columns whose first click shows the greatest first. */
const GREATEST_FIRST = new Set(['head', 'behind', 'config', 'updated']);

function filterOf(params) {
  const text = (name) => params.get(name) ?? '';
  const sort = text('sort').replace(/^-/, '');
  return {
    text: text('q'),
    kind: text('kind'),
    state: text('state'),
    type: text('type'),
    retracted: params.has('retracted'),
    leased: params.has('leased'),
    isTree: text('view') === 'tree',
    sort: Object.hasOwn(SORTS, sort) ? sort : 'address',
    isDescending: text('sort').startsWith('-'),
    open: params.getAll('open'),
    creating: Object.hasOwn(creations, text('new')) ? text('new') : null,
  };
}

export function Records() {
  const store = useStore();
  const narrow = useNarrow();
  const { params } = usePlace();
  const filter = filterOf(params);
  const search = useRef();
  const found = useFound(filter.text, store);
  const { states, types } = useMemo(() => known(store), [store.version]);
  // A lease that runs out changes no record.
  const tick = Math.floor(useNow(10_000) / 10_000);
  const chosen = params.toString();
  const matched = useMemo(() => matching(store, filter, found), [store.version, chosen, found]);
  const shown = useMemo(() => {
    if (filter.isTree) return treeOf(matched, filter);
    return sorted(matched, filter);
  }, [matched, chosen, tick]);

  useEffect(() => {
    const slash = (event) => {
      if (event.key !== '/' || event.target.closest('input, textarea, select, dialog')) return;
      event.preventDefault();
      search.current?.focus();
      search.current?.select();
    };
    addEventListener('keydown', slash);
    return () => removeEventListener('keydown', slash);
  }, []);

  const created = (answer) => {
    setParams({ new: null });
    if (answer) location.hash = toRecord(answer.address);
  };
  const sortBy = (name) => {
    const isSame = filter.sort === name;
    const descends = isSame ? !filter.isDescending : GREATEST_FIRST.has(name);
    setParams({ sort: `${descends ? '-' : ''}${name}` === 'address' ? null : `${descends ? '-' : ''}${name}` });
  };
  const toggle = (path) => setParams({ open: filter.open.includes(path) ? filter.open.filter((it) => it !== path) : [...filter.open, path] });

  const head = (narrow ? [['address', 'Record']] : COLUMNS).map(([name, title]) => {
    if (filter.isTree) return html`<span role="columnheader" key=${name}>${title}</span>`;
    const isSorted = filter.sort === name;
    return html`<span role="columnheader" key=${name} aria-sort=${isSorted ? (filter.isDescending ? 'descending' : 'ascending') : undefined}>
      <button type="button" class="quiet sort" onClick=${() => sortBy(name)}>${title}
        <${Icon} name=${isSorted ? (filter.isDescending ? 'down' : 'up') : 'none'} /></button></span>`;
  });
  const cells = narrow ? narrowCells : wideCells;
  const row = filter.isTree ? treeRow(cells, toggle) : (record) => cells(record, html`<${Address} address=${record.address} />`, 0);
  const note = store.complete
    ? matched.length === store.order.length
      ? `${matched.length} records`
      : `${matched.length} of ${store.order.length} records`
    : store.order.length >= MOST_RECORDS
      ? `${matched.length} of the first ${store.order.length} records: there are more, which a search finds`
      : `${store.order.length} records read so far …`;

  return html`<section aria-labelledby="title" class="page records">
    <div class="page-head"><h1 id="title" tabindex="-1">Records</h1><p class="count" role="status">${note}</p>
      <div class="actions">
        <${Menu} label="Create" text=${html`<${Icon} name="plus" /> Create`} kind="primary" items=${[
          { label: 'New ledger …', onChoose: () => setParams({ new: 'ledger' }) },
          { label: 'New graph source …', onChoose: () => setParams({ new: 'graph_source' }) },
        ]} />
      </div></div>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="grow">Search
        <input ref=${search} type="search" value=${filter.text} placeholder="Part of an address, a type, a state …" autocomplete="off"
          spellcheck="false" aria-keyshortcuts="/" onInput=${(event) => setParams({ q: event.target.value })} /></label>
      <label>Kind
        <select value=${filter.kind} onChange=${(event) => setParams({ kind: event.target.value })}>
          <option value="">all</option><option value="ledger">ledgers</option><option value="graph_source">graph sources</option>
        </select></label>
      <${Choice} label="State" value=${filter.state} values=${states} onChoose=${(state) => setParams({ state })} />
      <${Choice} label="Type" value=${filter.type} values=${types} onChoose=${(type) => setParams({ type })} />
      ${narrow &&
      !filter.isTree &&
      html`<label>Order
        <select value=${`${filter.isDescending ? '-' : ''}${filter.sort}`} onChange=${(event) => setParams({ sort: event.target.value === 'address' ? null : event.target.value })}>
          ${COLUMNS.map(([name, title]) => {
            const value = GREATEST_FIRST.has(name) ? `-${name}` : name;
            return html`<option key=${name} value=${value}>${title}</option>`;
          })}</select></label>`}
      <label class="check"><input type="checkbox" checked=${filter.leased} onChange=${(event) => setParams({ leased: event.target.checked && '1' })} /> leased</label>
      <label class="check"><input type="checkbox" checked=${filter.retracted}
        onChange=${(event) => setParams({ retracted: event.target.checked && '1' })} /> retracted too</label>
      <div class="switch" role="group" aria-label="View">
        <button type="button" aria-pressed=${!filter.isTree} onClick=${() => setParams({ view: null })}>List</button>
        <button type="button" aria-pressed=${filter.isTree} onClick=${() => setParams({ view: 'tree' })}>Tree</button>
      </div>
    </form>
    <${VirtualList} key=${filter.isTree ? 'tree' : 'list'} items=${shown} keyOf=${filter.isTree ? (it) => it.key : (record) => record.address}
      row=${row} height=${narrow ? 62 : 38} head=${head} label="Records" role=${filter.isTree ? 'treegrid' : 'table'}
      attributes=${filter.isTree ? ({ depth, path, isOpen }) => ({ 'aria-level': depth + 1, 'aria-expanded': path === undefined ? undefined : isOpen }) : undefined}
      onKey=${filter.isTree ? treeKey(toggle) : undefined}
      empty=${!store.complete ? 'Loading …' : store.order.length === 0 ? 'There is no record yet. The overview shows the first command.' : 'No record matches.'} />
    ${filter.creating && html`<${Form} key=${filter.creating} action=${creations[filter.creating]} title=${creations[filter.creating].title} onClose=${created} />`}
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
    states.add(record.retracted ? 'retracted' : stateOf(record));
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
    if (filter.state && (record.retracted ? 'retracted' : stateOf(record)) !== filter.state) continue;
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

/** The rows of the tree: what the user has opened, and what a search has found. */
function treeOf(records, filter) {
  const open = new Set(filter.open);
  const isSearch = filter.text !== '' || filter.state !== '' || filter.type !== '' || filter.leased;
  // What was opened by a search is closed by hand.
  return rowsOf(records, (path, count) => open.has(path) !== (isSearch && count <= OPEN_FOUND));
}

const treeRow = (cells, toggle) => (it) => {
  // A record begins where the name of a folder beside it does, after its arrow.
  const indent = { paddingLeft: `${it.depth * 1.25 + (it.record ? 1.7 : 0)}rem` };
  if (it.record) return cells(it.record, html`<a class="address" href=${toRecord(it.record.address)} aria-label=${it.record.address}><bdi>${it.label}</bdi></a>`, indent);
  return html`<span role="cell" class="grow folder" style=${indent}><button type="button" class="quiet" onClick=${() => toggle(it.path)}>
    <${Icon} name=${it.isOpen ? 'opened' : 'closed'} /> <bdi>${it.label}</bdi></button> <small>${it.count}</small></span>`;
};

const treeKey = (toggle) => (it, key) => {
  const turns = it.path !== undefined && ((key === 'ArrowRight' && !it.isOpen) || (key === 'ArrowLeft' && it.isOpen));
  if (turns) toggle(it.path);
  return turns;
};

const Marks = ({ record }) => html`${record.protected && html`<${Icon} name="shield" label="protected" />`}${leaseOf(record) && html`<${Icon} name="lock" label="leased" />`}`;

function wideCells(record, link, indent) {
  const lease = leaseOf(record);
  const late = lagOf(record);
  return html`
    <span role="cell" class="grow" title=${record.address} style=${indent || undefined}>${link} <${Marks} record=${record} /></span>
    <span role="cell" title=${kindOf(record)}><bdi>${kindOf(record)}</bdi></span>
    <span role="cell"><${StateBadge} record=${record} /></span>
    <span role="cell" class="number">${String(record.head?.t ?? '–')}</span>
    <span role="cell" class="number">${String(record.index?.t ?? '–')}${late > 0 ? html` <small title=${`${late} behind the head`}>−${late}</small>` : ''}</span>
    <span role="cell" class="number">${String(record.config?.v ?? '–')}</span>
    <span role="cell" class="soft"><${Ago} time=${record.updated_at} /></span>
    <span role="cell">${lease ? html`<${Countdown} expiresAt=${lease.expires_at} /> <bdi class="soft" title=${`${lease.name}, ${lease.holder}`}>${lease.holder}</bdi>` : ''}</span>`;
}

function narrowCells(record, link, indent) {
  return html`<span role="cell" class="stack" style=${indent || undefined}>
    <span class="line">${link} <${Marks} record=${record} /></span>
    <span class="line small"><${StateBadge} record=${record} /> <bdi>${kindOf(record)}</bdi>
      ${record.head ? ` · head ${record.head.t}` : ''} · index ${record.index?.t ?? '–'} · <${Ago} time=${record.updated_at} />
      ${leaseOf(record) ? html` · <${Badge} kind="busy">leased<//>` : ''}</span>
  </span>`;
}
