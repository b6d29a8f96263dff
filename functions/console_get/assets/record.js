// One record: its value and its history beside each other, then what it has to do with others.

import { getRecord } from './api.js';
import { withoutLeases } from './actions.js';
import { Action } from './forms.js';
import { History } from './history.js';
import { stringify } from './json.js';
import { html, useEffect, useRef, useState } from './lib.js';
import { Menu } from './menu.js';
import { Address, Ago, Badge, ContentId, Copy, Countdown, Failure, Icon, Json, StateBadge } from './parts.js';
import { Relations } from './relations.js';
import { beforeReading, follow, lagOf, leaseOf, stateOf, takeRecord, useStore } from './store.js';

/** A record that changes without pause is read again this often, in milliseconds. */
const READ_EVERY = 300;

/** Reads a record, and again whenever it changes: `{record, problem, refresh}`. What the feed shows meanwhile is shown immediately. */
function useRecord(address) {
  const store = useStore();
  const [read, setRead] = useState({ isRead: false, isUnknown: false, problem: null });
  const refresh = useRef(null);
  useEffect(() => {
    const controller = new AbortController();
    let [timer, readAt, started, shown] = [null, 0, 0, 0];
    const load = async () => {
      timer = null;
      readAt = Date.now();
      started += 1;
      const mine = started;
      const begun = beforeReading();
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
      const known = takeRecord(address, record, begun);
      setRead({ isRead: true, isUnknown: !known, problem: null });
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
  const record = read.isRead ? (store.records.get(address) ?? null) : undefined;
  return { record, problem: read.problem, refresh: () => refresh.current?.() };
}

export function Record({ address }) {
  const { record, problem, refresh } = useRecord(address);
  const [action, setAction] = useState(null);
  const close = () => setAction(null);

  // The heading stays the same element whatever is below it: the focus is on it when the page is opened.
  const page = (marks, actions, body) => html`<section class="page record" aria-labelledby="title">
    <div class="page-head"><h1 id="title" tabindex="-1"><${Address} address=${address} link=${false} /></h1>
      <${Copy} text=${address} what="The address" />${marks}${actions}</div>
    <${Failure} problem=${problem} />${body}</section>`;
  if (record === undefined) return page(null, null, !problem && html`<p role="status">Loading …</p>`);
  if (record === null) {
    return page(null, null, html`<p role="status">There is no record under this address, or none that you may see.</p>
      <${History} address=${address} />`);
  }
  const isLedger = record.kind === 'ledger';
  const item = (name, label, kind) => ({ label, kind, onChoose: () => setAction(name) });
  const act = (name, label) => html`<button type="button" onClick=${() => setAction(name)}>${label}</button>`;

  const marks = html`<p class="marks"><${Badge} kind="plain">${isLedger ? 'ledger' : (record.source_type ?? 'graph source')}<//> <${StateBadge} record=${record} />
    ${record.retracted && stateOf(record) !== 'retracted' && html`<${Badge} kind="off">retracted<//>`}
    ${record.protected && html`<${Badge} kind="good"><${Icon} name="shield" /> protected<//>`}</p>`;
  const actions = html`<div class="actions" role="group" aria-label="Actions">
    ${isLedger && !record.retracted && act('branch', 'Branch …')}
    <${Menu} label="More actions" items=${[
      record.protected ? item('unprotect', 'Unprotect …') : item('protect', 'Protect …'),
      record.retracted ? item('restore', 'Restore …') : item('retract', 'Retract …'),
      null,
      isLedger && item('reset', 'Reset …', 'danger'),
      item('purge', 'Purge …', 'danger'),
    ]} /></div>`;
  return page(marks, actions, html`
    <div class="beside">
      <div>
        <section class="card values" aria-label="Value">
          ${isLedger && html`<${Head} record=${record} act=${act} />`}
          <${Index} record=${record} act=${act} />
          <${Status} record=${record} act=${act} />
          <${Config} record=${record} act=${act} />
          <${Facts} record=${record} />
        </section>
        <${Relations} record=${record} />
      </div>
      <${History} address=${record.address} />
    </div>
    ${action && html`<${Action} name=${action} live=${record} refresh=${refresh} onClose=${close} />`}`);
}

const Part = ({ title, mark, copy, push, children }) => html`<section class="part" role="region" aria-label=${title}>
  <h2>${title}</h2><span class="mark" data-test=${`mark-${title.toLowerCase()}`}>${mark}</span>
  <div class="part-value">${children}</div><div class="part-actions">${copy}${push}</div></section>`;

const Head = ({ record, act }) => html`<${Part} title="Head" mark=${`t ${record.head?.t ?? 0}`} push=${act('head', 'Push head …')}>
  <${ContentId} id=${record.head?.id} what="The id of the head" /><//>`;

function Index({ record, act }) {
  const late = lagOf(record);
  const { t = 0, rev, id, graphs } = record.index ?? {};
  return html`<${Part} title="Index" mark=${`t ${t}${rev ? `, rev ${rev}` : ''}`} push=${act('index', 'Push index …')}>
    <${ContentId} id=${id} what="The id of the index" />
    ${record.kind === 'ledger' && record.head?.t > 0 && html`<small class=${late > 0 ? 'late' : ''}>${late > 0 ? `${late} behind the head` : 'as far as the head'}</small>`}
    ${graphs && html`<${Json} value=${graphs} />`}<//>`;
}

function Status({ record, act }) {
  const { state, ...meta } = withoutLeases(record.status?.payload);
  const lease = leaseOf(record);
  return html`<${Part} title="Status" mark=${`v ${record.status?.v ?? 0}`} push=${act('status', 'Push status …')}
    copy=${html`<${Copy} text=${stringify(record.status?.payload ?? null, 2)} what="The status" />`}>
    <bdi>${state ?? 'unknown'}</bdi>
    ${Object.keys(meta).length > 0 && html`<${Json} value=${meta} />`}
    ${lease && html`<${Lease} lease=${lease} />`}<//>`;
}

/** The seconds of the epoch as a time. */
const epoch = (seconds) => new Date(seconds * 1000).toISOString();

const Lease = ({ lease }) => html`<div class="lease" role="group" aria-label="Lease"><dl class="facts">
  <div><dt><${Icon} name="lock" /> Lease</dt><dd><bdi>${lease.name}</bdi></dd></div>
  <div><dt>Holder</dt><dd data-test="holder"><bdi>${lease.holder}</bdi></dd></div>
  <div><dt>Expiry</dt><dd><${Countdown} expiresAt=${lease.expires_at} /></dd></div>
  ${Number.isFinite(lease.acquired_at) && html`<div><dt>Acquired</dt><dd><${Ago} time=${epoch(lease.acquired_at)} /></dd></div>`}
  ${Number.isFinite(lease.refreshed_at) && html`<div><dt>Refreshed</dt><dd><${Ago} time=${epoch(lease.refreshed_at)} /></dd></div>`}
  ${lease.target_t !== undefined && html`<div><dt>Target t</dt><dd>${String(lease.target_t)}</dd></div>`}
</dl></div>`;

const Config = ({ record, act }) => html`<${Part} title="Config" mark=${`v ${record.config?.v ?? 0}`} push=${act('config', 'Push config …')}
  copy=${record.config?.payload && html`<${Copy} text=${stringify(record.config.payload, 2)} what="The config" />`}>
  ${record.config?.payload ? html`<${Json} value=${record.config.payload} />` : html`<span class="none">none</span>`}<//>`;

const Facts = ({ record }) => html`<dl class="facts">
  <div><dt>Created</dt><dd><${Ago} time=${record.created_at} /></dd></div>
  <div><dt>Updated</dt><dd><${Ago} time=${record.updated_at} /></dd></div>
  ${record.source_branch && html`<div><dt>Branched from</dt><dd><${Address} address=${`${record.name}:${record.source_branch}`} /></dd></div>`}
</dl>`;
