// The console: its frame, and which page is shown. Pages are named by the fragment, so that the console works under any path.

import { hasToken, setToken } from './api.js';
import { Changes } from './changes.js';
import { html, render, useEffect, useLayoutEffect, useRef, useState } from './lib.js';
import { restart } from './live.js';
import { Dialog, Failure } from './parts.js';
import { Record } from './record.js';
import { Records } from './records.js';
import { useStore } from './store.js';

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/** The page that the fragment names. */
function route() {
  const [, page, ...rest] = location.hash.split('/');
  if (page === 'record' && rest.length > 0) {
    const name = decoded(rest.join('/'));
    return { page, address: name.includes(':') ? name : `${name}:main` };
  }
  return { page: page === 'changes' ? page : 'records' };
}

const LINKS = {
  loading: ['busy', 'Reading'],
  live: ['good', 'Live'],
  polling: ['good', 'Live, by long polls'],
  reconnecting: ['bad', 'Disconnected, retrying'],
  denied: ['bad', 'A token is required'],
};

function App() {
  const store = useStore();
  const [at, setAt] = useState(route());
  const [asking, setAsking] = useState(false);
  const first = useRef(true);

  useEffect(() => {
    const moved = () => setAt(route());
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  // A change of page is announced by its title, and by the focus on its heading.
  useLayoutEffect(() => {
    document.title = `${at.address ?? (at.page === 'changes' ? 'Changes' : 'Records')} · Nameservice`;
    if (!first.current) document.getElementById('title')?.focus({ preventScroll: true });
    first.current = false;
  }, [at.page, at.address]);

  const [kind, text] = LINKS[store.link];
  const tab = (page, label) =>
    html`<a href=${`#/${page}`} aria-current=${at.page === page ? 'page' : undefined}>${label}</a>`;

  return html`
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      document.getElementById('main').focus();
    }}>Skip to the content</a>
    <header>
      <a class="brand" href="#/records">Nameservice</a>
      <nav aria-label="Pages">${tab('records', 'Records')} ${tab('changes', 'Changes')}
        <a href=${new URL('../v1/docs', import.meta.url).href}>API</a></nav>
      <p class="link ${kind}" role="status" data-test="link" title=${store.problem?.message}><span aria-hidden="true" class="dot"></span> ${text}</p>
      <button type="button" onClick=${() => setAsking(true)}>${hasToken() ? 'Token ✓' : 'Token …'}</button>
    </header>
    <main id="main" tabindex="-1">
      ${store.link === 'denied' && html`<${Denied} problem=${store.problem} onToken=${() => setAsking(true)} />`}
      ${at.page === 'record'
        ? html`<${Record} key=${at.address} address=${at.address} />`
        : at.page === 'changes'
          ? html`<${Changes} />`
          : html`<${Records} />`}
    </main>
    <div class="notice" role="status" aria-live="polite"><${Notice} notice=${store.notice} /></div>
    ${asking && html`<${Token} onClose=${() => setAsking(false)} />`}
  `;
}

const Denied = ({ problem, onToken }) => html`<div class="denied">
  <${Failure} problem=${problem} />
  <button type="button" class="primary" onClick=${onToken}>Enter a token</button>
</div>`;

/** How long an outcome is shown. */
const NOTICE_FOR = 8000;

function Notice({ notice }) {
  const [gone, setGone] = useState(0);
  useEffect(() => {
    if (!notice) return undefined;
    const timer = setTimeout(() => setGone(notice.id), NOTICE_FOR);
    return () => clearTimeout(timer);
  }, [notice]);
  return notice && notice.id !== gone ? html`<p>${notice.text}</p>` : null;
}

function Token({ onClose }) {
  const field = useRef();
  const use = (event) => {
    event.preventDefault();
    setToken(field.current.value);
    onClose();
    restart();
  };
  const forget = () => {
    setToken('');
    onClose();
    restart();
  };
  return html`<${Dialog} title="Token" onClose=${onClose}>
    <form onSubmit=${use} class="action">
      <p>Sent with every request of this page, and kept in its memory only: it is gone when the page is closed or loaded again.</p>
      <div class="field"><label for="field-token">Bearer token</label>
        <input ref=${field} id="field-token" type="password" autocomplete="off" spellcheck="false" required /></div>
      <div class="buttons"><button type="submit" class="primary">Use it</button>
        ${hasToken() && html`<button type="button" onClick=${forget}>Forget the token</button>`}
        <button type="button" onClick=${onClose}>Cancel</button></div>
    </form>
  <//>`;
}

const root = document.getElementById('app');
root.replaceChildren();
render(html`<${App} />`, root);
restart();
