// Whose requests these are: a token that the user has pasted, or one of an OpenID provider. It is kept in the storage of this tab, so that
// it survives a reload; it is gone when the tab is closed or the user signs out. Nothing is kept in localStorage or in a cookie.

import { claims, refreshed } from './oidc.js';

/** Another service of the same origin, below another path, has a key of its own. */
const KEY = `nameservice-console ${new URL('../', import.meta.url).pathname}`;
/** A token is exchanged for a new one this long before it ends, in milliseconds. */
const EARLY = 30_000;

const stored = () => {
  try {
    const it = JSON.parse(sessionStorage.getItem(KEY));
    return typeof it?.token === 'string' ? it : null;
  } catch {
    return null;
  }
};

/** `{token, name?, signIn?, refresh?, until?}`; null without a token. */
let session = stored();
let refreshing = null;
let hasLeft = false;

function keep(next) {
  session = next;
  try {
    if (next) sessionStorage.setItem(KEY, JSON.stringify(next));
    else sessionStorage.removeItem(KEY);
  } catch {
    // Without storage the session ends with the page.
  }
}

const nameIn = (token) => {
  const { preferred_username, email, name, sub } = claims(token ?? '');
  const found = [preferred_username, email, name, sub].find((it) => typeof it === 'string' && it !== '');
  return found?.slice(0, 80);
};

export const hasSession = () => session !== null;
/** Whether a sign-in is to be one of another user. */
export const isForAnother = () => session !== null || hasLeft;
/** Whether the provider has issued the token. */
export const isSignedIn = () => Boolean(session?.signIn);
/** How the user is called, as far as the token says it. */
export const userName = () => session?.name ?? null;

/** Uses a token that was pasted. */
export function takePasted(text) {
  const token = text.trim();
  keep(token ? { token, name: nameIn(token) } : null);
}

/**
 * Uses the answer of a token endpoint. That of a sign-in replaces the session, which may be another user's; that of a renewal replaces only
 * what it has of the `renewed` session.
 */
export function takeTokens(answer, signIn, renewed = null) {
  const { access_token: token, id_token: id, refresh_token: refresh, expires_in: seconds } = answer;
  const until = Number(seconds) > 0 ? Date.now() + Number(seconds) * 1000 : undefined;
  keep({ token, name: nameIn(id) ?? renewed?.name ?? nameIn(token), signIn, refresh: refresh ?? renewed?.refresh, until });
}

/** Ends the session. Until the next one, a provider that still knows the user is asked to ask again. */
export function end() {
  keep(null);
  hasLeft = true;
}

/** The token for the next request, exchanged for a new one if it is about to end, or if it `isRejected`. */
export async function bearer(isRejected = null) {
  const isDue = session?.until && Date.now() > session.until - EARLY;
  if (session?.refresh && (isDue || (isRejected && isRejected === session.token))) {
    const { refresh, signIn } = session;
    refreshing ??= refreshed(signIn, refresh)
      .then((answer) => session?.refresh === refresh && takeTokens(answer, signIn, session))
      // The service decides on what is left: a provider that is down does not end a session.
      .catch((error) => error.isFinal && session?.refresh === refresh && keep({ ...session, refresh: undefined }))
      .finally(() => (refreshing = null));
    await refreshing;
  }
  return session?.token ?? '';
}
