// Sign-in at an OpenID provider: the authorization code flow with PKCE (RFC 7636), as a public client without a secret.

/** The URL that the provider sends the user back to: the console, without its fragment. */
const REDIRECT = new URL('../console', import.meta.url).href;
/** What is remembered while the user is at the provider. */
const KEY = `nameservice-console sign-in ${new URL('../', import.meta.url).pathname}`;

/** A reason why nobody was signed in. `isFinal`: the provider has rejected it, and would again. */
export class SignInError extends Error {
  constructor(message, isFinal = true) {
    super(message);
    this.title = 'The sign-in has failed';
    this.isFinal = isFinal;
  }
}

let settings = null;

/** What the service says of itself: `{sign_in?, graphiql}`. */
export const readSettings = () =>
  (settings ??= fetch(new URL('settings.json', import.meta.url), { credentials: 'omit' })
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(`status ${answer.status}`))))
    .catch(() => ((settings = null), { graphiql: false })));

const encoded = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
const random = () => encoded(crypto.getRandomValues(new Uint8Array(32)));

/** The claims of a JSON Web Token, unverified: to be shown, and for nothing else. */
export function claims(token) {
  try {
    const bytes = atob(token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/'));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(bytes, (char) => char.charCodeAt(0)))) ?? {};
  } catch {
    return {};
  }
}

async function fetched(url, what, options = {}) {
  let answer;
  try {
    answer = await fetch(url, { ...options, credentials: 'omit', cache: 'no-store', redirect: 'error' });
  } catch {
    throw new SignInError(`${what} at ${new URL(url).origin} cannot be read: it is down, or does not allow this page (CORS).`, false);
  }
  const document = await answer.json().catch(() => ({}));
  if (answer.ok) return document;
  const reason = document.error_description ?? document.error ?? `status ${answer.status}`;
  throw new SignInError(`${what} rejects it: ${reason}`, answer.status < 500 && answer.status !== 429);
}

/** The provider's endpoints. */
async function discovered({ issuer }) {
  const found = await fetched(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`, 'The description of the provider');
  if (found.issuer !== issuer) throw new SignInError(`The provider calls itself ${found.issuer}, and the service expects ${issuer}.`);
  for (const name of ['authorization_endpoint', 'token_endpoint']) {
    if (!/^https?:\/\//.test(found[name])) throw new SignInError(`The provider names no ${name}.`);
  }
  return found;
}

/** Sends the user to the provider. `isAnother`: they are asked who they are even if the provider knows. */
export async function begin(signIn, isAnother = false) {
  if (!crypto.subtle) throw new SignInError('Browsers allow a sign-in over https or at localhost only.');
  const { authorization_endpoint } = await discovered(signIn);
  const [state, nonce, verifier] = [random(), random(), random()];
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier));
  sessionStorage.setItem(KEY, JSON.stringify({ state, nonce, verifier, hash: location.hash }));
  const url = new URL(authorization_endpoint);
  const query = {
    response_type: 'code',
    client_id: signIn.client_id,
    redirect_uri: REDIRECT,
    scope: signIn.scope,
    state,
    nonce,
    code_challenge: encoded(new Uint8Array(digest)),
    code_challenge_method: 'S256',
    ...(signIn.resource && { resource: signIn.resource, audience: signIn.resource }),
    ...(isAnother && { prompt: 'login' }),
  };
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  location.assign(url);
}

/** The provider's answer in the address of the page, if the user comes from there: the tokens. The address is cleaned in any case. */
export async function finish() {
  const query = new URLSearchParams(location.search);
  if (!query.has('state') || !(query.has('code') || query.has('error'))) return null;
  let begun = null;
  try {
    begun = JSON.parse(sessionStorage.getItem(KEY));
  } catch {
    // It was not this page that has begun it.
  }
  sessionStorage.removeItem(KEY);
  history.replaceState(null, '', `${location.pathname}${begun?.hash ?? ''}`);
  if (!begun || begun.state !== query.get('state')) throw new SignInError('This tab has not begun it, or has already finished it. Sign in again.');
  if (query.has('error')) throw new SignInError(`The provider says: ${query.get('error_description') ?? query.get('error')}`);
  const signIn = (await readSettings()).sign_in;
  if (!signIn) throw new SignInError('This service names no provider any more.');
  const { token_endpoint, issuer } = await discovered(signIn);
  if (query.has('iss') && query.get('iss') !== issuer) throw new SignInError('Another provider has answered.');
  const answer = await exchanged(token_endpoint, signIn, {
    grant_type: 'authorization_code',
    code: query.get('code'),
    redirect_uri: REDIRECT,
    code_verifier: begun.verifier,
  });
  if (answer.id_token && claims(answer.id_token).nonce !== begun.nonce) throw new SignInError('The answer belongs to another sign-in.');
  return { answer, signIn };
}

async function exchanged(endpoint, signIn, members) {
  const body = new URLSearchParams({ client_id: signIn.client_id, ...members, ...(signIn.resource && { resource: signIn.resource }) });
  const answer = await fetched(endpoint, 'The token endpoint', { method: 'POST', body });
  if (typeof answer.access_token !== 'string') throw new SignInError('The token endpoint has issued no access token.');
  return answer;
}

/** Exchanges a refresh token for an access token. */
export async function refreshed(signIn, token) {
  const { token_endpoint } = await discovered(signIn);
  return exchanged(token_endpoint, signIn, { grant_type: 'refresh_token', refresh_token: token });
}
