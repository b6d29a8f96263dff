// Forms that write. Each is a compare-and-set against the value that it showed when it was opened: if that is no longer current, both
// values are shown and nothing is written. Changes of the record never affect what was typed.

import { Problem, call, getRecord, newKey } from './api.js';
import { equal } from './difference.js';
import { actions } from './actions.js';
import { html, useRef, useState } from './lib.js';
import { Address, Compared, Dialog, Failure } from './parts.js';
import { announce, takeRecord } from './store.js';

/** The dialog of an action on a record. `live` is the record as it is now, and changes while the dialog is open. */
export function Action({ name, live, refresh, onClose }) {
  const action = actions[name];
  return html`<${Form} action=${action} live=${live} refresh=${refresh} onClose=${onClose} title=${action.title}>
    <p class="of"><${Address} address=${live.address} link=${false} /></p><//>`;
}

/**
 * An action has `fields`, `initial(record)`, `shown(record)`: the value that it depends on, `request(input, base, record)`: method,
 * path and body, or an `Error` that says what is wrong with the input, and `mine(input)`: the value to be compared.
 * `compares` says that the service itself compares; else the record is read again just before. `refresh` reads it again after.
 */
export function Form({ action, live, refresh, onClose, title, children }) {
  // As they were when the form was opened; only the user changes them from here on.
  const [base, setBase] = useState(() => action.shown(live));
  const [input, setInput] = useState(() => action.initial(live));
  const [result, setResult] = useState({ problem: null, overtaken: null });
  const [busy, setBusy] = useState(false);
  // An attempt with an unknown outcome is repeated with the same key and the same bytes.
  const attempt = useRef(null);

  // The service's answer to a push may be newer than the record that was last read: then the older value is ignored.
  const passed = useRef(null);
  const stored = live ? action.shown(live) : base;
  const unknown = attempt.current && result.problem;
  // After an unknown outcome, this form's own write may have changed the record: repeating it shows that.
  const moved = !busy && !unknown && !equal(base, stored) && !equal(passed.current, stored);
  const overtaken = result.overtaken ?? (moved ? { actual: stored, early: true } : null);

  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setResult({ problem: null, overtaken: null });
    try {
      const request = attempt.current ?? { ...action.request(input, base, live), key: newKey() };
      if (!action.compares && live && !attempt.current) {
        const record = await getRecord(live.address);
        takeRecord(live.address, record);
        const actual = action.shown(record);
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

  const rebase = () => {
    if (!overtaken.early) passed.current = stored;
    setBase(overtaken.actual === null ? base : action.base(overtaken.actual));
    setResult({ problem: null, overtaken: null });
  };
  const take = async () => {
    try {
      const record = await getRecord(live.address);
      takeRecord(live.address, record);
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
    <form onSubmit=${submit} class="action" autocomplete="off">
      ${action.note && html`<p>${action.note}</p>`}
      ${action.fields(live, input).map((field) => html`<${Field} key=${field.name} field=${field} value=${input[field.name]}
        onInput=${(value) => {
          attempt.current = null;
          setInput((now) => ({ ...now, [field.name]: value }));
        }} />`)}
      <${Failure} problem=${result.problem} />
      ${unknown && html`<p role="status">It is not known whether it was written. Sending it again is safe: it is applied at most once.</p>`}
      ${overtaken &&
      html`<section class="overtaken" aria-label="Overtaken" role="alert">
        <h3>${overtaken.early ? 'It has changed since you opened this form' : 'Overtaken: nothing was written'}</h3>
        <${Compared} left=${action.mine(input, base)} right=${overtaken.actual} leftTitle="Yours" rightTitle="Stored" />
        <div class="buttons">
          <button type="button" onClick=${rebase}>Keep mine, continue from the stored value</button>
          <button type="button" onClick=${take}>Take the stored value</button>
        </div>
      </section>`}
      <div class="buttons">
        <button type="submit" class=${action.danger ? 'danger' : 'primary'} disabled=${busy || Boolean(overtaken) || !ready(action, input, live)}>
          ${busy ? 'Sending …' : unknown ? 'Send again' : action.button}</button>
        <button type="button" onClick=${() => onClose()}>Cancel</button>
      </div>
    </form>
  <//>`;
}

const ready = (action, input, live) => !action.ready || action.ready(input, live);

function Field({ field, value, onInput }) {
  const id = `field-${field.name}`;
  const common = { id, name: field.name, required: field.required ?? false, spellcheck: false, autocomplete: 'off' };
  const typed = (event) => onInput(event.target.value);
  const control = field.options
    ? html`<select ...${common} value=${value} onChange=${typed}>
        ${field.options.map(([key, label]) => html`<option key=${key} value=${key}>${label}</option>`)}</select>`
    : field.rows
      ? html`<textarea ...${common} rows=${field.rows} value=${value} onInput=${typed}></textarea>`
      : html`<input ...${common} type=${field.type ?? 'text'} value=${value} min=${field.min} onInput=${typed} />`;
  return html`<div class="field"><label for=${id}>${field.label}</label>${control}
    ${field.help && html`<p class="small" id=${`${id}-help`}>${field.help}</p>`}</div>`;
}
