// The page that opens first: what is wrong, then how much happens, and what has happened.

import { attention, figuresOf } from './attention.js';
import { call, send } from './api.js';
import { html, useEffect, useMemo, useNow, useRef, useState } from './lib.js';
import { older } from './live.js';
import { Address, Ago, Copy, Countdown, Icon, duration, isBad } from './parts.js';
import { toRecords } from './place.js';
import { Sentence, markOf } from './sentence.js';
import { COUNTED, lagOf, leaseOf, rate, stateOf, useStore } from './store.js';

/** How often the service is asked how it is, in milliseconds. */
const ASK_EVERY = 15_000;
const RECENT = 12;
const NAMED = 5;

/** The deep health of the service, and its figures if it shows them here: `{health, figures}`. */
function useHealth() {
  const [known, set] = useState({ health: null, figures: [] });
  useEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    let [timer, hasFigures] = [null, true];
    const ask = async () => {
      let health = { ok: true };
      let figures = [];
      try {
        await call('GET', 'health?deep=true', { signal });
      } catch (error) {
        if (signal.aborted) return;
        health = { ok: false, reason: error.message };
      }
      try {
        // A service that other machines reach has its metrics elsewhere.
        if (hasFigures) figures = figuresOf(await (await send('GET', '../metrics', { headers: { accept: 'text/plain' }, signal })).text());
      } catch (error) {
        hasFigures = ![401, 403, 404].includes(error.status);
      }
      if (signal.aborted) return;
      set({ health, figures });
      timer = setTimeout(ask, ASK_EVERY);
    };
    ask();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, []);
  return known;
}

/** What the records add up to. */
function sums(records, now) {
  const all = { ledgers: 0, sources: 0, retracted: 0, guarded: 0, states: new Map(), leases: [], behind: [] };
  for (const record of records.values()) {
    if (record.kind === 'ledger') all.ledgers += 1;
    else all.sources += 1;
    if (record.protected) all.guarded += 1;
    if (record.retracted) {
      all.retracted += 1;
      continue;
    }
    const state = stateOf(record) || 'unknown';
    all.states.set(state, (all.states.get(state) ?? 0) + 1);
    const lease = leaseOf(record);
    if (lease && lease.expires_at * 1000 > now) all.leases.push({ record, lease });
    if (lagOf(record) > 0) all.behind.push(record);
  }
  all.states = [...all.states].sort((a, b) => b[1] - a[1]);
  all.leases.sort((a, b) => a.lease.expires_at - b.lease.expires_at);
  all.behind.sort((a, b) => lagOf(b) - lagOf(a));
  return all;
}

export function Overview() {
  const store = useStore();
  const { health, figures } = useHealth();
  const now = useNow();
  const asked = useRef(false);
  useEffect(() => {
    if (asked.current || store.position === 0 || store.changes.length >= RECENT) return;
    asked.current = true;
    // The page says what is wrong with the connection.
    older(50).catch(() => {});
  });
  const second = Math.floor(now / 1000);
  const wrong = useMemo(() => attention(store.records, { health, figures, now }), [store.version, second, health, figures]);
  const all = useMemo(() => sums(store.records, now), [store.version, second]);
  const isEmpty = store.complete && store.order.length === 0;

  return html`<section aria-labelledby="title" class="page overview">
    <div class="page-head"><h1 id="title" tabindex="-1">Overview</h1><${Position} store=${store} /></div>
    ${isEmpty ? html`<${First} />` : html`<${Wrong} wrong=${wrong} isRead=${store.complete && health !== null} />`}
    <${Tiles} all=${all} store=${store} now=${now} />
    <div class="columns">
      <${Recent} changes=${store.changes} />
      <div>
        <${Activity} store=${store} now=${now} />
        ${all.behind.length > 0 && html`<${Behind} behind=${all.behind} />`}
        ${all.leases.length > 0 && html`<${Leases} leases=${all.leases} />`}
        ${all.states.length > 0 && html`<${States} states=${all.states} />`}
      </div>
    </div>
  </section>`;
}

function Position({ store }) {
  const timeline = store.cursor?.includes(':') ? store.cursor.split(':')[0] : null;
  return html`<p class="count">Position <strong class="number" data-test="position">${store.position}</strong>
    ${timeline && html` · timeline <code>${timeline}</code>`}</p>`;
}

function Wrong({ wrong, isRead }) {
  if (wrong.length === 0) {
    return html`<section class="card calm" aria-label="What is wrong" data-test="wrong">
      ${isRead
        ? html`<p class="good"><${Icon} name="check" /> <strong>Nothing is wrong.</strong> <span class="soft">No state of error, no expired lease, no index far behind.</span></p>`
        : html`<p class="soft">Reading …</p>`}
    </section>`;
  }
  const grave = wrong.filter((it) => it.level === 'bad').length;
  return html`<section class="card wrong ${grave ? 'bad' : 'busy'}" aria-label="What is wrong" data-test="wrong">
    <h2><${Icon} name="alert" /> ${grave ? `${grave} ${grave === 1 ? 'thing is' : 'things are'} wrong` : 'Worth a look'}</h2>
    <ul>${wrong.map(
      (it) => html`<li key=${`${it.rank} ${it.address} ${it.text}`} class=${it.level}>
        <span class="mark ${it.level}" aria-hidden="true"></span>
        <span>${it.address ? html`<${Address} address=${it.address} /> ${it.text}` : it.href ? html`<a href=${it.href}>${it.text}</a>` : it.text}
          ${it.since && html` <small><${Ago} time=${new Date(it.since).toISOString()} /></small>`}
          ${it.detail && html`<small class="detail"><bdi>${it.detail}</bdi></small>`}</span>
      </li>`,
    )}</ul>
  </section>`;
}

function Tiles({ all, store, now }) {
  const { lag } = store;
  const tile = (label, value, href, note) => html`<div class="tile"><dt>${label}</dt>
    <dd>${href ? html`<a href=${href}>${value}</a>` : value}${note && html` <small>${note}</small>`}</dd></div>`;
  return html`<dl class="tiles">
    ${tile('Ledgers', all.ledgers, toRecords({ kind: 'ledger' }))}
    ${tile('Graph sources', all.sources, toRecords({ kind: 'graph_source' }))}
    ${tile('Leases held', all.leases.length, toRecords({ leased: '1' }))}
    ${tile('Retracted', all.retracted, toRecords({ state: 'retracted' }))}
    ${tile('Changes a second', rate(10, now).toFixed(1), '#/changes', 'over 10 s')}
    ${tile('From write to feed', lag ? milliseconds(lag.feed) : '–', null, lag ? '' : 'no change yet')}
  </dl>`;
}

const milliseconds = (value) => (value < 10_000 ? `${Math.round(value)} ms` : duration(value / 1000));

const Recent = ({ changes }) => {
  const shown = changes.slice(-RECENT).reverse();
  return html`<section class="card" aria-label="Recent changes">
    <div class="card-head"><h2>Recent changes</h2><a href="#/changes">All changes</a></div>
    ${shown.length === 0
      ? html`<p class="none">None yet.</p>`
      : html`<ol class="sentences">${shown.map(
          (change) => html`<li key=${change.position}><span class="mark ${markOf(change)}" aria-hidden="true"></span>
            <span class="what"><${Sentence} change=${change} /></span> <small><${Ago} time=${change.occurred_at} /></small></li>`,
        )}</ol>`}
  </section>`;
};

/** How many changes were seen in each of the last seconds. */
function Activity({ store, now }) {
  const second = Math.floor(now / 1000);
  const counts = Array.from({ length: COUNTED }, (_, n) => store.counts.get(second - COUNTED + n) ?? 0);
  const most = Math.max(...counts, 1);
  const sum = counts.reduce((a, b) => a + b, 0);
  return html`<section class="card" aria-label="Activity">
    <div class="card-head"><h2>Activity</h2><small>${sum} ${sum === 1 ? 'change' : 'changes'} in the last minute</small></div>
    <div class="bars" aria-hidden="true">${counts.map((count, n) => html`<i key=${second - COUNTED + n} style=${{ height: `${(count / most) * 100}%`, minHeight: count > 0 ? '2px' : '0' }}></i>`)}</div>
  </section>`;
}

const Behind = ({ behind }) => {
  const most = lagOf(behind[0]);
  return html`<section class="card" aria-label="Indexes furthest behind">
    <div class="card-head"><h2>Indexes furthest behind</h2><a href=${toRecords({ sort: '-behind' })}>${behind.length === 1 ? 'One' : `All ${behind.length}`}</a></div>
    <ul class="measures">${behind.slice(0, NAMED).map(
      (record) => html`<li key=${record.address}><${Address} address=${record.address} />
        <span class="measure" aria-hidden="true"><i style=${{ width: `${(lagOf(record) / most) * 100}%` }}></i></span>
        <span class="number">${lagOf(record)}</span></li>`,
    )}</ul></section>`;
};

const Leases = ({ leases }) => html`<section class="card" aria-label="Leases">
  <div class="card-head"><h2>Leases</h2><a href=${toRecords({ leased: '1' })}>${leases.length === 1 ? 'One' : `All ${leases.length}`}</a></div>
  <ul class="measures">${leases.slice(0, NAMED).map(
    ({ record, lease }) => html`<li key=${record.address}><${Address} address=${record.address} />
      <span class="soft"><bdi>${lease.name} · ${lease.holder}</bdi></span><span class="number"><${Countdown} expiresAt=${lease.expires_at} /></span></li>`,
  )}</ul></section>`;

const States = ({ states }) => html`<section class="card" aria-label="States">
  <div class="card-head"><h2>States</h2></div>
  <p class="states">${states.slice(0, 12).map(
    ([state, count]) => html`<a key=${state} class="badge ${state === 'ready' ? 'good' : isBad(state) ? 'bad' : 'busy'}" href=${toRecords({ state })}><bdi>${state}</bdi> ${count}</a> `,
  )}</p></section>`;

/** What to type first, in a service without a record. */
function First() {
  const url = new URL('..', import.meta.url).href.replace(/\/$/, '');
  const commands = `nameservice create mydb --url ${url}
nameservice push head mydb bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi 1 --expect-unborn --url ${url}
nameservice watch --url ${url}`;
  return html`<section class="card" aria-label="First steps" data-test="first">
    <div class="card-head"><h2>There is no record yet</h2><${Copy} text=${commands} what="The commands" /></div>
    <p class="soft">Type the first command, and the record appears here; or <a href="#/records?new=ledger">create a ledger in a form</a>.</p>
    <pre class="json" tabindex="0">${commands}</pre>
  </section>`;
}
