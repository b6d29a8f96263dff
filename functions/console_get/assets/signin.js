// Who uses the console: sign-in at a provider, or with a token that is pasted; and the end of the session.

import { html, useEffect, useRef, useState } from './lib.js';
import { restart } from './live.js';
import { Menu } from './menu.js';
import { begin, readSettings } from './oidc.js';
import { Dialog, Failure, Icon } from './parts.js';
import { end, hasSession, isForAnother, isSignedIn, takePasted, userName } from './session.js';

/** What the service says of itself, once it has answered. */
export function useSettings() {
  const [settings, set] = useState(null);
  useEffect(() => {
    readSettings().then(set);
  }, []);
  return settings;
}

/** In place of a page, while the service wants to know who asks. */
export function Denied({ problem, failure, settings }) {
  return html`<section class="signin card" aria-labelledby="title">
    <h1 id="title" tabindex="-1">${hasSession() ? 'Sign in again' : 'Sign in'}</h1>
    ${failure || hasSession() || problem?.status !== 401
      ? html`<${Failure} problem=${failure ?? problem} />`
      : html`<p class="soft">This service answers only those whom it knows.</p>`}
    <${Ways} settings=${settings} />
  </section>`;
}

/** The same in a dialog, to use another token. */
export const SignIn = ({ settings, onClose }) => html`<${Dialog} title="Sign in" onClose=${onClose}>
  <div class="signin"><${Ways} settings=${settings} onDone=${onClose} /></div><//>`;

function Ways({ settings, onDone }) {
  const field = useRef();
  const [state, set] = useState({ problem: null, busy: false });
  const provider = settings?.sign_in;
  const paste = (event) => {
    event.preventDefault();
    takePasted(field.current.value);
    field.current.value = '';
    onDone?.();
    restart();
  };
  const go = async () => {
    set({ problem: null, busy: true });
    try {
      await begin(provider, isForAnother());
    } catch (problem) {
      set({ problem, busy: false });
    }
  };
  const form = html`<form onSubmit=${paste} class="action">
    <div class="field"><label for="field-token">Bearer token</label>
      <input ref=${field} id="field-token" type="password" autocomplete="off" spellcheck="false" required aria-describedby="field-token-help" />
      <p class="small" id="field-token-help">Kept in this tab: it survives a reload, and is gone when the tab is closed.</p></div>
    <div class="buttons"><button type="submit" class=${provider ? '' : 'primary'}>Use it</button></div>
  </form>`;
  if (!settings) return null;
  return html`<${Failure} problem=${state.problem} />
    ${provider &&
    html`<button type="button" class="primary wide" disabled=${state.busy} onClick=${go}>${state.busy ? 'One moment …' : `Sign in at ${new URL(provider.issuer).host}`}</button>`}
    ${provider ? html`<details><summary>Use a token instead</summary>${form}</details>` : form}`;
}

/** The user at the end of the header. */
export function User({ settings, isDenied, onSignIn }) {
  if (!hasSession()) {
    // A service that lets everyone in has nobody to name; one that does not asks in place of a page.
    return settings?.sign_in && !isDenied ? html`<button type="button" onClick=${onSignIn}>Sign in</button>` : null;
  }
  const leave = () => {
    end();
    restart();
  };
  const name = userName();
  return html`<${Menu} label=${`User ${name ?? 'with a token'}`} kind="user" text=${html`<${Icon} name="user" /> <bdi>${name ?? 'Token'}</bdi>`} items=${[
    { label: isSignedIn() ? 'Sign in as another user …' : 'Use another token …', onChoose: onSignIn },
    { label: isSignedIn() ? 'Sign out' : 'Forget the token', onChoose: leave },
  ]} />`;
}
