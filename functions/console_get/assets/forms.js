// Forms that write. Each is a compare-and-set against the value that it showed when it was opened: if that is no longer current, both
// values are shown and nothing is written. Changes of the record never affect what was typed.

import { Problem, call, getRecord, newKey } from './api.js';
import { equal } from './difference.js';
import { actions } from './actions.js';
import { html, useEffect, useRef, useState } from './lib.js';
import { Address, Compared, Dialog, Failure, Json } from './parts.js';
import { announce, beforeReading, takeRecord } from './store.js';

/** The dialog of an action on a record. `live` is the record as it is now, and changes while the dialog is open. */
export function Action({ name, live, refresh, onClose }) {
  const action = actions[name];
  return html`<${Form} action=${action} live=${live} refresh=${refresh} onClose=${onClose} title=${action.title}>
    <p class="of"><${Address} address=${live.address} link=${false} /></p><//>`;
}

/**
 * An action has `fields` (`of`: how the service calls each), `replaces(base)`: what the form overwrites, `initial(record)`, `shown(record)`: the value that it depends on, `request(input, base, record)`: method,
 * path and body, or an `Error` that says what is wrong with the input, and `mine(input)`: the value to be compared.
 * `compares` says that the service itself compares; else the record is read again just before. `refresh` reads it again after.
 */
export function Form({ action, live, refresh, onClose, title, children }) {
  // As they were when the form was opened; only the user changes them from here on.
  const [base, setBase] = useState(() => action.shown(live));
  const [input, setInput] = useState(() => action.initial(live));
  const [result, setResult] = useState({ problem: null, overtaken: null });
  const [busy, setBusy] = useState(false);
  const form = useRef();
  // An attempt with an unknown outcome is repeated with the same key and the same bytes.
  const attempt = useRef(null);

  // The service's answer to a push may be newer than the record that was last read: then the older value is ignored.
  const passed = useRef(null);
  const stored = live ? action.shown(live) : base;
  const unknown = attempt.current && result.problem;
  // After an unknown outcome, this form's own write may have changed the record: repeating it shows that.
  const moved = !busy && !unknown && !equal(base, stored) && !equal(passed.current, stored);
  const fields = action.fields(live, input);
  const overtaken = result.overtaken ?? (moved ? { actual: stored, early: true } : null);
  // What was wrong before is not beside another value.
  const wrong = overtaken ? null : wrongField(fields, result.problem);
  // By its name: the element is drawn again with its message.
  useEffect(() => {
    if (wrong) form.current.elements[wrong.name]?.focus();
  }, [result.problem]);

  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setResult({ problem: null, overtaken: null });
    try {
      const request = attempt.current ?? { ...action.request(input, base, live), key: newKey() };
      if (!action.compares && live && !attempt.current) {
        const actual = action.shown(await readNow(live.address));
        if (!equal(base, actual)) return setResult({ problem: null, overtaken: { actual } });
      }
      attempt.current = request;
      const answer = await call(request.method, request.path, { body: request.body, key: request.key });
      attempt.current = null;
      if (answer?.status === 'stale') return setResult({ problem: null, overtaken: { actual: answer.value } });
      // The page shows what was written before the next form is opened on it.
      await refresh?.();
      announce(action.done(answer, live));
      onClose(answer);
    } catch (error) {
      if (!(error instanceof Problem)) return setResult({ problem: error, overtaken: null });
      if (!error.isOutcomeUnknown) attempt.current = null;
      const isConflict = live && error.type === 'conflict' && error.document.actual !== undefined;
      setResult(
        isConflict ? { problem: null, overtaken: { actual: error.document.actual } } : { problem: error, overtaken: null },
      );
    } finally {
      setBusy(false);
    }
  };

  const readNow = async (address) => {
    const begun = beforeReading();
    const record = await getRecord(address);
    takeRecord(address, record, begun);
    return record;
  };
  const rebase = () => {
    if (!overtaken.early) passed.current = stored;
    setBase(overtaken.actual === null ? base : action.base(overtaken.actual));
    setResult({ problem: null, overtaken: null });
  };
  const take = async () => {
    try {
      const record = await readNow(live.address);
      passed.current = stored;
      setBase(action.shown(record));
      setInput(action.initial(record));
      setResult({ problem: null, overtaken: null });
    } catch (error) {
      setResult({ problem: error, overtaken: null });
    }
  };

  return html`<${Dialog} title=${title} onClose=${() => onClose()}>
    ${children}
    <form onSubmit=${submit} class="action" autocomplete="off" ref=${form}>
      ${action.note && html`<p>${action.note}</p>`}
      ${live && action.replaces && html`<${Replaced} value=${action.replaces(base)} />`}
      ${fields.map((field) => html`<${Field} key=${field.name} field=${field} value=${input[field.name]} error=${wrong?.name === field.name ? wrong.message : null}
        onInput=${(value) => {
          attempt.current = null;
          setInput((now) => ({ ...now, [field.name]: value }));
        }} />`)}
      ${!wrong && !overtaken && html`<${Failure} problem=${result.problem} />`}
      ${unknown && html`<p role="status">It is not known whether it was written. Sending it again is safe: it is applied at most once.</p>`}
      ${overtaken &&
      html`<${Overtaken}>
        <h3>${overtaken.early ? 'It has changed since you opened this form' : 'Overtaken: nothing was written'}</h3>
        <${Compared} left=${action.mine(input, base)} right=${overtaken.actual} leftTitle="Yours" rightTitle="Stored" />
        <div class="buttons">
          <button type="button" onClick=${rebase}>Keep mine, continue from the stored value</button>
          <button type="button" onClick=${take}>Take the stored value</button>
        </div>
      <//>`}
      <div class="buttons">
        <button type="submit" class=${action.danger ? 'danger' : 'primary'} disabled=${busy || Boolean(overtaken) || !ready(action, input, live)}>
          ${busy ? 'Sending …' : unknown ? 'Send again' : action.button}</button>
        <button type="button" onClick=${() => onClose()}>Cancel</button>
      </div>
    </form>
  <//>`;
}

const ready = (action, input, live) => !action.ready || action.ready(input, live);

/** The field that a problem is about, and what it says of it: `{name, message}`. */
function wrongField(fields, problem) {
  if (!problem) return null;
  if (problem.field) return { name: problem.field, message: problem.message };
  const named = problem.document?.field;
  if (typeof named !== 'string' || named === '') return null;
  // The most specific one: `new.payload.state` before `new.payload`.
  const matches = fields.flatMap(({ name, of }) =>
    [of ?? []].flat().filter((it) => named === it || named.startsWith(`${it}.`) || named.startsWith(`${it}[`)).map((it) => ({ name, it })),
  );
  const [best] = matches.sort((a, b) => b.it.length - a.it.length);
  if (!best) return null;
  return { name: best.name, message: problem.message.replace(`${best.it}: `, '') };
}

/** What is overwritten. */
function Replaced({ value }) {
  const isPointer = 't' in value;
  const part = ([name, { id, t }]) => html`<div key=${name}><dt>${name}</dt><dd>t ${t} · ${id ? html`<code class="id">${id}</code>` : html`<span class="none">none</span>`}</dd></div>`;
  return html`<section class="replaced" aria-label="Replaces">
    ${isPointer
      ? html`<dl class="facts">${part(['Replaces', value])}</dl>`
      : 'head' in value
        ? html`<dl class="facts">${Object.entries(value).map(part)}</dl>`
        : html`<details><summary>Replaces v ${String(value.v)}</summary><${Json} value=${value.payload} /></details>`}
  </section>`;
}

/** Two values after a race. In sight when it appears, since the form may be longer than the window; the focus stays. */
function Overtaken({ children }) {
  const ref = useRef();
  useEffect(() => ref.current.scrollIntoView({ block: 'nearest' }), []);
  return html`<section class="overtaken" aria-label="Overtaken" role="alert" ref=${ref}>${children}</section>`;
}

function Field({ field, value, error, onInput }) {
  const id = `field-${field.name}`;
  const described = [error && `${id}-error`, field.help && `${id}-help`].filter(Boolean).join(' ') || undefined;
  const common = {
    id,
    name: field.name,
    required: field.required ?? false,
    spellcheck: false,
    autocomplete: 'off',
    'aria-invalid': error ? 'true' : undefined,
    'aria-describedby': described,
  };
  const typed = (event) => onInput(event.target.value);
  const control = field.options
    ? html`<select ...${common} value=${value} onChange=${typed}>
        ${field.options.map(([key, label]) => html`<option key=${key} value=${key}>${label}</option>`)}</select>`
    : field.rows
      ? html`<textarea ...${common} rows=${field.rows} value=${value} onInput=${typed}></textarea>`
      : html`<input ...${common} type=${field.type ?? 'text'} value=${value} min=${field.min} onInput=${typed} />`;
  return html`<div class="field ${error ? 'wrong' : ''}"><label for=${id}>${field.label}</label>${control}
    ${error && html`<p class="error" id=${`${id}-error`} role="alert">${error}</p>`}
    ${field.help && html`<p class="small" id=${`${id}-help`}>${field.help}</p>`}</div>`;
}
