// What a record has to do with others: its branches as a tree, what depends on it, and what it depends on.

import { call, inPath } from './api.js';
import { html, useEffect, useMemo, useState } from './lib.js';
import { natural } from './order.js';
import { Address, Badge, Failure } from './parts.js';
import { toRecord } from './place.js';
import { useStore } from './store.js';

/** One panel for all of it; what there is none of is left out. */
export function Relations({ record }) {
  const store = useStore();
  const { branches, problem } = useBranches(record, store);
  const found = useMemo(() => dependents(record, store), [store.version, record]);
  const hidden = record.dependents - found.length;
  const dependencies = record.dependencies ?? [];
  const isAlone = branches.length <= 1 && record.dependents === 0 && dependencies.length === 0 && !problem;
  return html`<section class="card" aria-label="Relations">
    <div class="card-head"><h2>Relations</h2></div>
    <${Failure} problem=${problem} />
    ${isAlone && html`<p class="none">${record.kind === 'ledger' ? 'No other branches, and nothing depends on it.' : 'It depends on nothing, and nothing on it.'}</p>`}
    ${branches.length > 1 && html`<div role="group" aria-label="Branches"><h3>Branches</h3><${Tree} branches=${branches} current=${record.address} /></div>`}
    ${dependencies.length > 0 &&
    html`<div role="group" aria-label="Depends on"><h3>Depends on</h3>
      <ul class="tree">${dependencies.map((of) => html`<li key=${of}><${Address} address=${of} /></li>`)}</ul></div>`}
    ${record.dependents > 0 &&
    html`<div role="group" aria-label="Dependents"><h3>Dependents</h3>
      <ul class="tree">${found.map((other) => html`<li key=${other.address}><${Address} address=${other.address} /> <small><bdi>${other.source_type}</bdi></small></li>`)}</ul>
      ${hidden > 0 && html`<p>${hidden} more that are not in this list.</p>`}</div>`}
  </section>`;
}

/** The branches of a record's name: those of the service's answer, as the feed has changed them since. */
function useBranches(record, store) {
  const [{ read, problem }, set] = useState({ read: [], problem: null });
  useEffect(() => {
    // All records are here, and live.
    if (record.kind !== 'ledger' || store.complete) return undefined;
    const controller = new AbortController();
    const readAll = async () => {
      const all = [];
      let cursor;
      do {
        const query = new URLSearchParams({ limit: '1000', ...(cursor && { cursor }) });
        const page = await call('GET', `branches/${inPath(record.name)}?${query}`, { signal: controller.signal });
        all.push(...page.branches);
        cursor = page.cursor;
      } while (cursor);
      set({ read: all, problem: null });
    };
    readAll().catch((error) => error.name !== 'AbortError' && set((now) => ({ ...now, problem: error })));
    return () => controller.abort();
  }, [record.name, record.branches, store.complete]);
  const branches = useMemo(() => {
    if (record.kind !== 'ledger') return [];
    const all = new Map(store.complete ? [] : read.map((branch) => [branch.address, branch]));
    for (const other of store.records.values()) {
      if (other.name === record.name && other.kind === 'ledger') all.set(other.address, other);
    }
    return [...all.values()].sort((a, b) => natural(a.branch, b.branch));
  }, [store.version, store.complete, read, record]);
  return { branches, problem: store.complete ? null : problem };
}

function Tree({ branches, current }) {
  const known = new Set(branches.map((branch) => branch.branch));
  const children = (of) => branches.filter((branch) => branch.source_branch === of && branch.branch !== of);
  const roots = branches.filter((branch) => !branch.source_branch || !known.has(branch.source_branch));
  const item = (branch) => {
    const below = children(branch.branch);
    return html`<li key=${branch.address}>
      ${branch.address === current
        ? html`<strong aria-current="true"><bdi>${branch.branch}</bdi></strong>`
        : html`<a href=${toRecord(branch.address)}><bdi>${branch.branch}</bdi></a>`}
      <small>${` t ${branch.head?.t ?? 0}`}</small> ${branch.retracted && html`<${Badge} kind="off">retracted<//>`}
      ${below.length > 0 && html`<ul>${below.map(item)}</ul>`}
    </li>`;
  };
  return html`<ul class="tree">${roots.map(item)}</ul>`;
}

/** The graph sources that depend on the record, as far as the user may see them. */
function dependents(record, store) {
  const found = [];
  for (const other of store.records.values()) if (other.dependencies?.includes(record.address)) found.push(other);
  return found;
}
