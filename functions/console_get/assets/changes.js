// The feed, live, as sentences.

import { html, useEffect, useMemo, useNarrow, useNow, useRef, useState } from './lib.js';
import { older } from './live.js';
import { Address, Dialog, Failure, Icon, Json, Time, duration } from './parts.js';
import { setParams, usePlace } from './place.js';
import { Sentence, author, brief, deed, markOf } from './sentence.js';
import { mayHaveOlder, useStore } from './store.js';
import { VirtualList } from './virtual.js';

const CONCERNS = ['meta', 'head', 'index', 'status', 'config'];
const CHANGES = ['created', 'updated', 'reset', 'retracted', 'restored', 'purged'];
const HEAD = ['Position', 'Time', 'Change', 'Value'];

export function Changes() {
  const store = useStore();
  const narrow = useNarrow();
  const { params } = usePlace();
  const text = (name) => params.get(name) ?? '';
  const filter = { text: text('q'), kind: text('kind'), concern: text('concern'), change: text('change'), by: text('by') };
  const [paused, setPaused] = useState(null);
  const [problem, setProblem] = useState(null);
  const [looked, setLooked] = useState(null);
  const [reading, setReading] = useState(false);
  const asked = useRef(false);

  const earlier = async () => {
    setReading(true);
    try {
      await older();
      setProblem(null);
      // What was read is older than where the feed was paused.
      setPaused((now) => now && [...store.changes.filter((change) => change.position < (now[0]?.position ?? Infinity)), ...now]);
    } catch (error) {
      setProblem(error);
    }
    setReading(false);
  };
  useEffect(() => {
    if (asked.current || store.position === 0 || store.changes.length > 200) return;
    asked.current = true;
    earlier();
  });

  const all = paused ?? store.changes;
  const chosen = params.toString();
  const shown = useMemo(() => all.filter((change) => wanted(change, filter)).reverse(), [paused, store.changes, store.position, all.length, chosen]);
  const select = (name, label, values) => html`<label>${label}
    <select value=${filter[name]} onChange=${(event) => setParams({ [name]: event.target.value })}><option value="">all</option>
      ${values.map((value) => html`<option key=${value} value=${value}>${value.replace('_', ' ')}</option>`)}</select></label>`;
  const authors = useMemo(() => [...new Set(all.map(author).filter(Boolean))].sort(), [all.length, store.position]);
  const row = narrow ? narrowRow(setLooked) : wideRow(setLooked);
  const head = (narrow ? ['Change'] : HEAD).map((title) => html`<span role="columnheader" key=${title}>${title}</span>`);

  return html`<section aria-labelledby="title" class="page changes">
    <div class="page-head"><h1 id="title" tabindex="-1">Changes</h1><${Position} store=${store} /></div>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="grow">Address
        <input type="search" value=${filter.text} placeholder="Part of it, or mydb:*" autocomplete="off" spellcheck="false" aria-keyshortcuts="/"
          onInput=${(event) => setParams({ q: event.target.value })} /></label>
      ${select('kind', 'Kind', ['ledger', 'graph_source'])} ${select('concern', 'Concern', CONCERNS)}
      ${select('change', 'Change', CHANGES)} ${(authors.length > 0 || filter.by) && select('by', 'By', filter.by && !authors.includes(filter.by) ? [filter.by, ...authors] : authors)}
      <button type="button" aria-pressed=${paused !== null} onClick=${() => setPaused(paused ? null : [...store.changes])}>
        ${paused ? `Resume (${store.position - (paused.at(-1)?.position ?? 0)} new)` : 'Pause'}</button>
      <button type="button" disabled=${reading || !mayHaveOlder()} onClick=${earlier}>Earlier</button>
    </form>
    <${Failure} problem=${problem} />
    <${VirtualList} items=${shown} keyOf=${(change) => change.position} row=${row} height=${narrow ? 62 : 38} head=${head}
      label="Changes, newest first" empty=${store.position === 0 && store.link !== 'loading' ? 'Nothing has changed yet.' : 'No change matches.'} />
    ${looked && html`<${Dialog} title=${`Change ${looked.position}`} onClose=${() => setLooked(null)}>
      <p><${Sentence} change=${looked} /></p><${Json} value=${looked} /><//>`}
  </section>`;
}

function Position({ store }) {
  const now = useNow();
  const heard = store.heardAt ? Math.max(0, (now - store.heardAt) / 1000) : null;
  const lag = store.lag;
  return html`<dl class="facts position">
    <div><dt>Position</dt><dd class="number" data-test="position">${store.position}</dd></div>
    <div><dt>Write to feed</dt><dd>${lag ? milliseconds(lag.feed) : '–'}</dd></div>
    <div><dt>Feed to here</dt><dd data-test="lag">${lag && lag.here !== null ? milliseconds(lag.here) : '–'}</dd></div>
    <div><dt>Last event</dt><dd>${heard === null ? '–' : heard < 2 ? 'now' : `${duration(heard)} ago`}</dd></div>
  </dl>`;
}

const milliseconds = (value) => (value < 10_000 ? `${Math.round(value)} ms` : duration(value / 1000));

function wanted(change, { text, kind, concern, change: how, by }) {
  if (kind && change.kind !== kind) return false;
  if (concern && change.concern !== concern) return false;
  if (how && change.change !== how) return false;
  if (by && author(change) !== by) return false;
  if (!text) return true;
  if (!/[*?]/.test(text)) return change.address.toLowerCase().includes(text.toLowerCase());
  const pattern = text.replace(/[.+^${}()|[\]\\]/g, '\\$&').replace(/\*+/g, '.*').replace(/\?/g, '.');
  return new RegExp(`^${pattern}$`, 'su').test(change.address);
}

const By = ({ change }) => author(change) && html` by <strong class="by"><bdi>${author(change)}</bdi></strong>`;

const wideRow = (look) => (change) => html`
  <span role="cell" class="number soft">${change.position}</span>
  <span role="cell" class="soft"><${Time} time=${change.occurred_at} /></span>
  <span role="cell" class="grow sentence" title=${change.address}><span class="mark ${markOf(change)}" aria-hidden="true"></span>
    <${Address} address=${change.address} /> <bdi>${deed(change)}</bdi><${By} change=${change} /></span>
  <span role="cell" class="value"><button type="button" class="quiet" onClick=${() => look(change)}
    title="Show the whole change"><${Icon} name="look" label="Details" /> <bdi>${brief(change)}</bdi></button></span>`;

const narrowRow = (look) => (change) => html`<span role="cell" class="stack">
  <span class="line"><span class="mark ${markOf(change)}" aria-hidden="true"></span> <${Address} address=${change.address} /></span>
  <span class="line small"><button type="button" class="quiet" onClick=${() => look(change)}
    title="Show the whole change">#${change.position}</button>
    <bdi>${deed(change)}</bdi><${By} change=${change} /> · <${Time} time=${change.occurred_at} /></span>
</span>`;
