// One record: its concerns, lease, branches, dependents and history.

import { call, getRecord, inPath } from './api.js';
import { Action } from './forms.js';
import { History } from './history.js';
import { html, useEffect, useRef, useState } from './lib.js';
import { Address, Ago, Badge, ContentId, Countdown, Failure, Json, StateBadge } from './parts.js';
import { follow, leaseOf, takeRecord, useStore } from './store.js';

/** A record that changes without pause is read again this often, in milliseconds. */
const READ_EVERY = 300;

/** Reads a record, and again whenever it changes: `{record, problem, refresh}`. */
function useRecord(address) {
  const [read, setRead] = useState({ record: undefined, problem: null });
  const refresh = useRef(null);
  useEffect(() => {
    const controller = new AbortController();
    let [timer, readAt, started, shown] = [null, 0, 0, 0];
    const load = async () => {
      timer = null;
      readAt = Date.now();
      started += 1;
      const mine = started;
      let [record, problem] = [null, null];
      try {
        record = await getRecord(address, { signal: controller.signal });
      } catch (error) {
        if (error.name === 'AbortError') return;
        if (error.status !== 404) problem = error;
      }
      // If a later request was answered first, this answer is older than what is shown.
      if (controller.signal.aborted || mine < shown) return;
      shown = mine;
      if (problem) return setRead((now) => ({ ...now, problem }));
      takeRecord(address, record);
      setRead({ record, problem: null });
    };
    refresh.current = load;
    load();
    const unfollow = follow(address, () => {
      timer ??= setTimeout(load, Date.now() - readAt < READ_EVERY ? READ_EVERY : 0);
    });
    return () => {
      controller.abort();
      clearTimeout(timer);
      unfollow();
    };
  }, [address]);
  return { ...read, refresh: () => refresh.current?.() };
}

export function Record({ address }) {
  const { record, problem, refresh } = useRecord(address);
  const [action, setAction] = useState(null);
  const close = () => setAction(null);

  // The heading stays the same element whatever is below it: the focus is on it when the page is opened.
  const page = (head, body) => html`<section class="page record" aria-labelledby="title"><div class="page-head">
      <h1 id="title" tabindex="-1"><${Address} address=${address} link=${false} /></h1>${head}</div>
    <${Failure} problem=${problem} />${body}</section>`;
  if (record === undefined) return page(null, !problem && html`<p role="status">Loading …</p>`);
  if (record === null) {
    return page(null, html`<p role="status">There is no record under this address, or none that you may see.</p>
      <${History} address=${address} />`);
  }
  const act = (name, label, kind = '') =>
    html`<button type="button" class=${kind} onClick=${() => setAction(name)}>${label}</button>`;
  const isLedger = record.kind === 'ledger';

  const head = html`<p><${Badge} kind="plain">${isLedger ? 'ledger' : (record.source_type ?? 'graph source')}<//> <${StateBadge} record=${record} />
      ${record.retracted && html`<${Badge} kind="off">retracted<//>`}
      ${record.protected && html`<${Badge} kind="good">protected<//>`}</p>
    <div class="actions" role="group" aria-label="Actions">
      ${isLedger && !record.retracted && act('branch', 'Branch …')}
      ${record.retracted ? act('restore', 'Restore …') : act('retract', 'Retract …')}
      ${record.protected ? act('unprotect', 'Unprotect …') : act('protect', 'Protect …')}
      ${isLedger && act('reset', 'Reset …', 'danger')} ${act('purge', 'Purge …', 'danger')}
    </div>`;
  return page(head, html`
    <${Facts} record=${record} />
    <div class="cards">
      ${isLedger &&
      html`<${Card} title="Head" mark=${`t ${record.head?.t ?? 0}`} push=${act('head', 'Push head …')}>
        <${ContentId} id=${record.head?.id} /><//>`}
      <${Card} title="Index" mark=${`t ${record.index?.t ?? 0}${record.index?.rev ? `, rev ${record.index.rev}` : ''}`} push=${act('index', 'Push index …')}>
        <${ContentId} id=${record.index?.id} />
        ${isLedger && html`<p>${lateness(record)}</p>`}
        ${record.index?.graphs && html`<${Json} value=${record.index.graphs} />`}<//>
      <${Card} title="Status" mark=${`v ${record.status?.v ?? 0}`} push=${act('status', 'Push status …')}>
        <${Json} value=${record.status?.payload} /><//>
      <${Card} title="Config" mark=${`v ${record.config?.v ?? 0}`} push=${act('config', 'Push config …')}>
        ${record.config?.payload ? html`<${Json} value=${record.config.payload} />` : html`<p class="none">none</p>`}<//>
    </div>
    <${Lease} record=${record} />
    <div class="cards two">
      ${isLedger && html`<${Branches} record=${record} />`}
      <${Dependents} record=${record} />
    </div>
    <${History} address=${record.address} />
    ${action && html`<${Action} name=${action} live=${record} refresh=${refresh} onClose=${close} />`}`);
}

const Card = ({ title, mark, push, children }) => html`<section class="card" aria-label=${title}>
  <div class="card-head"><h2>${title}</h2><span class="mark" data-test=${`mark-${title.toLowerCase()}`}>${mark}</span></div>
  ${children}<div class="card-foot">${push}</div></section>`;

function lateness(record) {
  const late = (record.head?.t ?? 0) - (record.index?.t ?? 0);
  return late > 0 ? `${late} behind the head` : 'as far as the head';
}

const Facts = ({ record }) => html`<dl class="facts">
  <div><dt>Created</dt><dd><${Ago} time=${record.created_at} /></dd></div>
  <div><dt>Updated</dt><dd><${Ago} time=${record.updated_at} /></dd></div>
  ${record.source_branch && html`<div><dt>Branched from</dt><dd><${Address} address=${`${record.name}:${record.source_branch}`} /></dd></div>`}
  <div><dt>Its branches</dt><dd>${record.branches}</dd></div>
  <div><dt>Dependents</dt><dd>${record.dependents}</dd></div>
  ${record.dependencies?.length > 0 &&
  html`<div><dt>Depends on</dt><dd>${record.dependencies.map((of) => html`<${Address} key=${of} address=${of} /> `)}</dd></div>`}
</dl>`;

function Lease({ record }) {
  const lease = leaseOf(record);
  return html`<section class="card" aria-label="Lease">
    <div class="card-head"><h2>Lease</h2>${lease && html`<span class="mark"><${Countdown} expiresAt=${lease.expires_at} /></span>`}</div>
    ${lease
      ? html`<dl class="facts">
          <div><dt>Name</dt><dd>${lease.name}</dd></div>
          <div><dt>Holder</dt><dd data-test="holder"><bdi>${lease.holder}</bdi></dd></div>
          <div><dt>Acquired</dt><dd><${Ago} time=${epoch(lease.acquired_at)} /></dd></div>
          ${lease.refreshed_at && html`<div><dt>Refreshed</dt><dd><${Ago} time=${epoch(lease.refreshed_at)} /></dd></div>`}
          ${lease.target_t !== undefined && html`<div><dt>Target t</dt><dd>${lease.target_t}</dd></div>`}
        </dl>`
      : html`<p class="none">No lease is held.</p>`}
  </section>`;
}

const epoch = (seconds) => new Date(seconds * 1000).toISOString();

/** The branches of the record's name, as a tree. */
function Branches({ record }) {
  const [{ branches, problem }, set] = useState({ branches: null, problem: null });
  useEffect(() => {
    const controller = new AbortController();
    const read = async () => {
      const all = [];
      let cursor;
      do {
        const query = new URLSearchParams({ limit: '1000', ...(cursor && { cursor }) });
        const page = await call('GET', `branches/${inPath(record.name)}?${query}`, { signal: controller.signal });
        all.push(...page.branches);
        cursor = page.cursor;
      } while (cursor);
      set({ branches: all, problem: null });
    };
    read().catch((error) => error.name !== 'AbortError' && set((now) => ({ ...now, problem: error })));
    return () => controller.abort();
  }, [record.name, record.branches, record.retracted]);
  return html`<section class="card" aria-label="Branches"><div class="card-head"><h2>Branches</h2></div>
    <${Failure} problem=${problem} />
    ${branches ? html`<${Tree} branches=${branches} current=${record.address} />` : html`<p>Loading …</p>`}
  </section>`;
}

function Tree({ branches, current }) {
  const known = new Set(branches.map((branch) => branch.branch));
  const children = (of) => branches.filter((branch) => branch.source_branch === of);
  const roots = branches.filter((branch) => !branch.source_branch || !known.has(branch.source_branch));
  const item = (branch) => {
    const below = children(branch.branch);
    return html`<li key=${branch.address}>
      ${branch.address === current
        ? html`<strong aria-current="true"><bdi>${branch.branch}</bdi></strong>`
        : html`<a href=${`#/record/${encodeURIComponent(branch.address)}`}><bdi>${branch.branch}</bdi></a>`}
      <small>${` t ${branch.head?.t ?? 0}`}</small> ${branch.retracted && html`<${Badge} kind="off">retracted<//>`}
      ${below.length > 0 && html`<ul>${below.map(item)}</ul>`}
    </li>`;
  };
  return roots.length > 0 ? html`<ul class="tree">${roots.map(item)}</ul>` : html`<p class="none">none</p>`;
}

/** The graph sources that depend on the record, as far as the user may see them. */
function Dependents({ record }) {
  const store = useStore();
  const found = [];
  if (record.dependents > 0) {
    for (const other of store.records.values()) if (other.dependencies?.includes(record.address)) found.push(other);
  }
  const hidden = record.dependents - found.length;
  return html`<section class="card" aria-label="Dependents"><div class="card-head"><h2>Dependents</h2></div>
    ${record.dependents === 0 && html`<p class="none">Nothing depends on it.</p>`}
    ${found.length > 0 &&
    html`<ul class="tree">${found.map((other) => html`<li key=${other.address}><${Address} address=${other.address} /> <small>${other.source_type}</small></li>`)}</ul>`}
    ${hidden > 0 && html`<p>${hidden} more that are not in this list.</p>`}
  </section>`;
}
