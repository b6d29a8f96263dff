// Where the user is: the page and its state, in the fragment of the address, so that the console works under any path, and an address
// that is copied shows another user the same.

import { useLayoutEffect, useState } from './lib.js';

const PAGES = ['overview', 'records', 'changes'];
const listeners = new Set();

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/** The page that a fragment names: `{page, address?, params}`. */
export function placeOf(hash) {
  const question = hash.indexOf('?');
  const [path, query] = question < 0 ? [hash, ''] : [hash.slice(0, question), hash.slice(question + 1)];
  const [, page, ...rest] = path.split('/');
  const params = new URLSearchParams(query);
  if (page === 'record' && rest.length > 0) {
    const name = decoded(rest.join('/'));
    return { page, address: name.includes(':') ? name : `${name}:main`, params };
  }
  return { page: PAGES.includes(page) ? page : 'overview', params };
}

/** Draws the component again whenever the address of the page has changed. */
export function usePlace() {
  const [place, set] = useState(() => placeOf(location.hash));
  // Before anything else can happen: an effect comes after the next frame, and would miss what the user does until then.
  useLayoutEffect(() => {
    const moved = () => set(placeOf(location.hash));
    listeners.add(moved);
    addEventListener('hashchange', moved);
    return () => {
      listeners.delete(moved);
      removeEventListener('hashchange', moved);
    };
  }, []);
  return place;
}

let waiting = null;

/** Changes members of the state of the page, without an entry in the browser's history. Empty values are left out. */
export function setParams(members) {
  const [path] = location.hash.split('?');
  const { params } = placeOf(location.hash);
  for (const [name, value] of Object.entries(members)) {
    params.delete(name);
    for (const one of [value].flat()) if (one !== '' && one !== null && one !== undefined && one !== false) params.append(name, one);
  }
  const query = params.toString();
  write(`${path || '#/overview'}${query && `?${query}`}`);
  for (const listener of [...listeners]) listener();
}

/** Browsers allow some 200 changes of an address in 30 seconds, and throw after that. */
function write(hash) {
  clearTimeout(waiting);
  try {
    history.replaceState(history.state, '', hash);
  } catch {
    waiting = setTimeout(() => write(hash), 1000);
  }
}

export const toRecord = (address) => `#/record/${encodeURIComponent(address)}`;
export const toRecords = (members) => `#/records?${new URLSearchParams(members)}`;
