// The data of the console: all records that the user may see, and the last changes. live.js fills it, and the pages draw it.

import { useEffect, useState } from './lib.js';

/** How many changes are kept to be looked at. */
const KEPT_CHANGES = 2000;
/** How long changes are collected before the pages are drawn again. */
const DRAW_AFTER = 40;

export const state = {
  /** Address -> record. */
  records: new Map(),
  /** Their addresses, sorted. */
  order: [],
  /** Whether all records have been read. */
  complete: false,
  /** `loading`, `live`, `polling`, `reconnecting`, `denied`. */
  link: 'loading',
  /** Why there is no connection. */
  problem: null,
  /** Everything up to here has been seen. */
  position: 0,
  /** The last changes, oldest first. */
  changes: [],
  /** When the service was last heard. */
  heardAt: 0,
  /** How long the last change took from the write to the feed, and from the feed to here, in milliseconds. */
  lag: null,
  /** The last outcome to be announced: `{text, id}`. */
  notice: null,
};

const listeners = new Set();
const followers = new Map();
let drawing = null;

/** Draws the pages again, soon. */
export function touch() {
  drawing ??= setTimeout(() => {
    drawing = null;
    for (const listener of [...listeners]) listener();
  }, DRAW_AFTER);
}

/** Draws the component again whenever something has changed. */
export function useStore() {
  const [, set] = useState(0);
  useEffect(() => {
    const listener = () => set((n) => n + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return state;
}

/** Calls back with every change of one record, and with `null` if changes may have been missed. */
export function follow(address, callback) {
  const set = followers.get(address) ?? new Set();
  followers.set(address, set.add(callback));
  return () => {
    set.delete(callback);
    if (set.size === 0) followers.delete(address);
  };
}

export function announce(text) {
  state.notice = { text, id: (state.notice?.id ?? 0) + 1 };
  touch();
}

/** Forgets everything, as for another user. */
export function clear() {
  Object.assign(state, { records: new Map(), order: [], complete: false, position: 0, changes: [], lag: null });
  touch();
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** The index of an address in the order, or where it would be. */
function place(address) {
  let [low, high] = [0, state.order.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(state.order[middle], address) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Takes a page of records. */
export function takeRecords(records) {
  for (const record of records) state.records.set(record.address, record);
  state.order = [...state.records.keys()].sort(compare);
  touch();
}

/** Takes one record as it was just read; `null` if it is unknown. */
export function takeRecord(address, record) {
  const known = state.records.has(address);
  if (record) {
    state.records.set(address, record);
    if (!known) state.order.splice(place(address), 0, address);
  } else if (known) {
    state.records.delete(address);
    state.order.splice(place(address), 1);
  }
  touch();
}

/** Removes the records that a new snapshot no longer has. */
export function keepOnly(addresses) {
  for (const address of state.order) if (!addresses.has(address)) state.records.delete(address);
  state.order = state.order.filter((address) => addresses.has(address));
  for (const callbacks of followers.values()) for (const callback of callbacks) callback(null);
  touch();
}

function unborn(change) {
  const { address, kind, name, branch, occurred_at } = change;
  const record = { address, kind, name, branch, retracted: false, updated_at: occurred_at, branches: 0, dependents: 0 };
  if (kind === 'ledger') record.head = { id: null, t: 0 };
  return {
    ...record,
    index: { id: null, t: 0, rev: 0 },
    status: { v: 1, payload: { state: 'ready' } },
    config: { v: 0, payload: null },
  };
}

/** The record after a change of it. */
export function applied(record, change) {
  const next = { ...(record ?? unborn(change)), updated_at: change.occurred_at };
  const { concern, watermark, payload } = change;
  if (change.source_type) next.source_type = change.source_type;
  if (change.payload_omitted) return next;
  if (concern === 'meta') Object.assign(next, payload);
  else if (concern === 'head') next.head = payload ?? { id: null, t: 0 };
  else if (concern === 'index') next.index = payload ?? { id: null, t: 0, rev: 0 };
  else if (concern === 'status') next.status = { v: watermark, payload: payload ?? { state: 'ready' } };
  else if (concern === 'config') next.config = { v: watermark, payload: payload ?? null };
  return next;
}

/** Applies changes in the order of the feed. Returns the addresses whose records have to be read again. */
export function takeChanges(changes) {
  const again = new Set();
  const now = Date.now();
  for (const change of changes) {
    if (change.position <= state.position) continue;
    state.position = change.position;
    const { address } = change;
    if (change.change === 'purged') {
      takeRecord(address, null);
      again.delete(address);
    } else {
      const known = state.records.get(address);
      if (change.payload_omitted || (!known && change.concern !== 'meta')) again.add(address);
      takeRecord(address, applied(known, change));
    }
    const [occurred, recorded] = [Date.parse(change.occurred_at), Date.parse(change.recorded_at)];
    state.lag = { feed: Math.max(0, recorded - occurred), here: Math.max(0, now - recorded) };
    state.changes.push(change);
    for (const callback of [...(followers.get(address) ?? [])]) callback(change);
  }
  if (state.changes.length > KEPT_CHANGES) state.changes = state.changes.slice(-KEPT_CHANGES);
  if (changes.length) touch();
  return again;
}

/** Puts older changes before those that are known. */
export function takeOlder(changes) {
  const first = state.changes[0]?.position ?? Infinity;
  const older = changes.filter((change) => change.position < first && change.position <= state.position);
  state.changes = [...older, ...state.changes].slice(-KEPT_CHANGES);
  touch();
}

/** The lease in a status, if there is one: the service shows it under its name. */
export function leaseOf(record) {
  for (const [name, value] of Object.entries(record?.status?.payload ?? {})) {
    if (value && typeof value === 'object' && typeof value.holder === 'string' && Number.isFinite(value.expires_at)) {
      return { name, ...value };
    }
  }
  return null;
}

export const stateOf = (record) => String(record?.status?.payload?.state ?? '');
