// Small parts that the pages are made of.

import { html, useEffect, useRef, useNow, useState } from './lib.js';
import { differences } from './difference.js';
import { stringify } from './json.js';
import { toRecord } from './place.js';
import { announce, stateOf } from './store.js';

/** An address. Isolated, so that right-to-left text does not affect what is beside it. */
export const Address = ({ address, link = true }) =>
  link
    ? html`<a class="address" href=${toRecord(address)}><bdi>${address}</bdi></a>`
    : html`<bdi class="address">${address}</bdi>`;

export const Json = ({ value }) => html`<pre class="json" tabindex="0">${stringify(value ?? null, 2)}</pre>`;

/** A picture beside a text, or in place of one that is its name. */
export const Icon = ({ name, label }) =>
  label ? html`<span class="icon ${name}" role="img" aria-label=${label} title=${label}></span>` : html`<span class="icon ${name}" aria-hidden="true"></span>`;

/** Puts a text on the clipboard. */
export function Copy({ text, what }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return undefined;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = async (event) => {
    event.preventDefault();
    event.stopPropagation();
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      announce(`${what} is copied.`);
    } catch {
      announce('The browser does not allow copying here: it needs https or localhost.');
    }
  };
  return html`<button type="button" class="quiet copy" onClick=${copy} aria-label=${`Copy ${what[0].toLowerCase()}${what.slice(1)}`} title="Copy">
    <${Icon} name=${copied ? 'check' : 'copy'} /></button>`;
}

/** A content id, short where there is little room, and its copy button. */
export const ContentId = ({ id, what = 'The id' }) =>
  id ? html`<span class="id"><code>${id}</code> <${Copy} text=${id} what=${what} /></span>` : html`<span class="none">none</span>`;

export const Badge = ({ kind, children }) => html`<span class="badge ${kind}">${children}</span>`;

/** Whether a state says that something has failed. */
export const isBad = (state) => /^(error|failed|failing|corrupt|broken)/i.test(state);

/** The state of a record, in the colour of its group and always as text. */
export function StateBadge({ record }) {
  const state = stateOf(record) || 'unknown';
  const kinds = { ready: 'good', retracted: 'off' };
  return html`<${Badge} kind=${record.retracted ? 'off' : isBad(state) ? 'bad' : (kinds[state] ?? 'busy')}>${state}<//>`;
}

const DAY = 86_400;
/** A number of seconds for people: `12 s`, `3 min`, `5 h`, `2 d`. */
export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 2 * DAY ? `${Math.round(s / 3600)} h` : `${Math.round(s / DAY)} d`;
}

/** A time, as how long ago it was. */
export function Ago({ time }) {
  const now = useNow();
  if (!time) return html`<span class="none">not known</span>`;
  const seconds = (now - Date.parse(time)) / 1000;
  return html`<time datetime=${time} title=${time}>${seconds < 2 ? 'now' : `${duration(seconds)} ago`}</time>`;
}

/** Made once, since making one takes longer than a row. Both are in the time zone of the user. */
const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const DAYS = new Intl.DateTimeFormat('sv-SE', { year: 'numeric', month: '2-digit', day: '2-digit' });

/** When something happened, by the clock, with the day if it was another one. */
export function Time({ time }) {
  if (!time) return null;
  const at = new Date(time);
  const shown = at.toDateString() === new Date().toDateString() ? CLOCK.format(at) : `${DAYS.format(at)} ${CLOCK.format(at).slice(0, 5)}`;
  return html`<time datetime=${time} title=${time}>${shown}</time>`;
}

/** How long a lease has left. */
export function Countdown({ expiresAt }) {
  const left = expiresAt - useNow(500) / 1000;
  if (left <= 0) return html`<${Badge} kind="bad">expired ${duration(-left)} ago<//>`;
  const [minutes, seconds] = [Math.floor(left / 60), Math.floor(left % 60)];
  return html`<span class="countdown" role="timer">${minutes}:${String(seconds).padStart(2, '0')} left</span>`;
}

const SIGNS = { added: '+', removed: '−', changed: '≠' };

/** Two values beside each other, and what differs. */
export function Compared({ left, right, leftTitle, rightTitle }) {
  const rows = differences(left ?? null, right ?? null);
  return html`<div class="compared">
    <div><h4>${leftTitle}</h4><${Json} value=${left} /></div>
    <div><h4>${rightTitle}</h4><${Json} value=${right} /></div>
    <${Differences} rows=${rows} before=${leftTitle} after=${rightTitle} />
  </div>`;
}

export function Differences({ rows, before = 'Before', after = 'After' }) {
  if (rows.length === 0) return html`<p class="same">There are no differences.</p>`;
  const text = (value) => (value === undefined ? '' : stringify(value));
  return html`<div class="scroll wide" tabindex="0" role="group" aria-label="Differences"><table class="differences">
    <thead><tr><th scope="col">Member</th><th scope="col">Change</th><th scope="col">${before}</th><th scope="col">${after}</th></tr></thead>
    <tbody>${rows.map(
      (row) => html`<tr class=${row.change} key=${row.path}>
        <th scope="row">${row.path || '(all)'}</th><td>${SIGNS[row.change]} ${row.change}</td>
        <td><bdi>${text(row.before)}</bdi></td><td><bdi>${text(row.after)}</bdi></td>
      </tr>`,
    )}</tbody>
  </table></div>`;
}

/** What the service has answered, with all members of its answer. */
export function Failure({ problem }) {
  if (!problem) return null;
  const { type, title, status, detail, ...members } = problem.document ?? {};
  // The message names the field already.
  delete members.field;
  return html`<div class="failure" role="alert">
    <strong>${problem.title ?? 'Something went wrong'}</strong>
    <p>${problem.message}</p>
    ${Object.keys(members).length > 0 && html`<${Json} value=${members} />`}
  </div>`;
}

/** A modal dialog. Escape closes it, and the focus returns to where it was. */
export function Dialog({ title, onClose, children }) {
  const ref = useRef();
  useEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    return () => before?.isConnected && before.focus();
  }, []);
  const cancelled = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${ref} aria-labelledby="dialog-title" onCancel=${cancelled}>
    <div class="dialog-head">
      <h2 id="dialog-title">${title}</h2>
      <button type="button" class="quiet" aria-label="Close" title="Close (Escape)" onClick=${onClose}><${Icon} name="close" /></button>
    </div>
    ${children}
  </dialog>`;
}
