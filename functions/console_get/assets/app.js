// The console: its frame, and which page is shown.

import { Changes } from './changes.js';
import { html, render, useEffect, useLayoutEffect, useRef, useState } from './lib.js';
import { restart } from './live.js';
import { finish } from './oidc.js';
import { Overview } from './overview.js';
import { Dialog, Icon } from './parts.js';
import { usePlace } from './place.js';
import { Record } from './record.js';
import { Records } from './records.js';
import { takeTokens } from './session.js';
import { Denied, SignIn, User, useSettings } from './signin.js';
import { announce, useStore } from './store.js';
import { moveInList } from './virtual.js';

const LINKS = {
  loading: ['busy', 'Reading'],
  live: ['good', 'Live'],
  polling: ['good', 'Live, by long polls'],
  reconnecting: ['bad', 'Disconnected, retrying'],
  denied: ['bad', 'Signed out'],
};
const TITLES = { overview: 'Overview', records: 'Records', changes: 'Changes' };
const KEYS = [
  ['/', 'Search'],
  ['j  ↓', 'Next row'],
  ['k  ↑', 'Previous row'],
  ['← →', 'Close and open a folder of the tree'],
  ['Enter', 'Open'],
  ['Page Up, Page Down, Home, End', 'Move further'],
  ['o  r  c', 'Overview, records, changes'],
  ['Escape', 'Close a form or a menu'],
  ['?', 'These keys'],
];

/** Keys that work wherever the focus is, but for fields, dialogs and menus. */
function useKeys(setHelp) {
  useEffect(() => {
    const pressed = (event) => {
      const { key, target } = event;
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (target.closest('input:not([type=checkbox]), textarea, select, dialog, [role=menu]')) return;
      const page = { o: 'overview', r: 'records', c: 'changes' }[key];
      if (page) location.hash = lastPlace[page] ?? `#/${page}`;
      else if (key === '?') setHelp(true);
      else if (key === '/' && !document.querySelector('main input[type=search]')) location.hash = lastPlace.records ?? '#/records';
      else if (key === '/') document.querySelector('main input[type=search]').focus();
      else if (key === 'j' || key === 'k') moveInList(key);
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
}

/** Where the user last was on each page, so that its tab leads back to the same search. */
const lastPlace = {};

function App({ failure }) {
  const store = useStore();
  const at = usePlace();
  const settings = useSettings();
  const [asking, setAsking] = useState(false);
  const [help, setHelp] = useState(false);
  const first = useRef(true);
  useKeys(setHelp);

  const query = at.params.toString();
  if (!at.address) lastPlace[at.page] = `#/${at.page}${query && `?${query}`}`;
  // A change of page is announced by its title, and by the focus on its heading.
  useLayoutEffect(() => {
    document.title = `${at.address ?? TITLES[at.page]} · Nameservice`;
    if (!first.current) document.getElementById('title')?.focus({ preventScroll: true });
    first.current = false;
  }, [at.page, at.address]);

  const [kind, text] = LINKS[store.link];
  const isDenied = store.link === 'denied';
  const tab = (page) =>
    html`<a href=${at.page === page ? `#/${page}` : (lastPlace[page] ?? `#/${page}`)} aria-current=${at.page === page ? 'page' : undefined}>${TITLES[page]}</a>`;
  const beside = (path) => new URL(`../${path}`, import.meta.url).href;

  return html`
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      document.getElementById('main').focus();
    }}>Skip to the content</a>
    <header>
      <a class="brand" href="#/overview"><${Icon} name="brand" /> Nameservice</a>
      <nav aria-label="Pages">${tab('overview')} ${tab('records')} ${tab('changes')}</nav>
      <nav aria-label="Interfaces" class="soft"><a href=${beside('v1/docs')}>API</a>
        ${settings?.graphiql && html`<a href=${beside('graphiql')}>GraphiQL</a>`}</nav>
      <p class="link ${kind}" role="status" data-test="link" title=${store.problem?.message}><span aria-hidden="true" class="dot"></span> ${text}</p>
      <button type="button" class="quiet keys" aria-label="Keys" title="Keys ( ? )" onClick=${() => setHelp(true)}><kbd>?</kbd></button>
      <${User} settings=${settings} isDenied=${isDenied} onSignIn=${() => setAsking(true)} />
    </header>
    <main id="main" tabindex="-1">
      ${isDenied
        ? html`<${Denied} problem=${store.problem} failure=${failure} settings=${settings} />`
        : at.page === 'record'
          ? html`<${Record} key=${at.address} address=${at.address} />`
          : at.page === 'changes'
            ? html`<${Changes} />`
            : at.page === 'records'
              ? html`<${Records} />`
              : html`<${Overview} />`}
    </main>
    <div class="notice" role="status" aria-live="polite"><${Notice} notice=${store.notice} /></div>
    ${asking && html`<${SignIn} settings=${settings} onClose=${() => setAsking(false)} />`}
    ${help &&
    html`<${Dialog} title="Keys" onClose=${() => setHelp(false)}>
      <dl class="keys-list">${KEYS.map(([keys, meaning]) => html`<div key=${meaning}><dt>${keys.split('  ').map((key) => html`<kbd key=${key}>${key}</kbd> `)}</dt><dd>${meaning}</dd></div>`)}</dl><//>`}
  `;
}

/** How long an outcome is shown, in milliseconds. */
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

/** Back from the provider, the session begins before the first request. */
let failure = null;
try {
  const signedIn = await finish();
  if (signedIn) takeTokens(signedIn.answer, signedIn.signIn);
} catch (error) {
  failure = error;
}
const root = document.getElementById('app');
root.replaceChildren();
render(html`<${App} failure=${failure} />`, root);
restart();
// With an open service, nothing else would say it.
if (failure) announce(`${failure.title ?? 'The sign-in has failed'}: ${failure.message}`);
