// The data of the console: all records that the user may see, and the last changes. live.js fills it, and the pages draw it.

import { useLayoutEffect, useState } from './lib.js';
import { natural, placeIn } from './order.js';

/** How many changes are kept to be looked at, besides those that the user has asked for. */
const KEPT_CHANGES = 2000;
/** How many older changes the user may ask for. */
const KEPT_OLDER = 20_000;
/** How long changes are collected before the pages are drawn again, in milliseconds; longer if drawing takes long. */
const DRAW_AFTER = 60;
/** What part of the time may go into drawing what has changed. */
const SHARE = 0.25;
/** For how many seconds changes are counted. */
export const COUNTED = 60;

export const state = {
  /** Address -> record. */
  records: new Map(),
  /** Their addresses, in natural order. */
  order: [],
  /** Grows with each change of a record, and with each change of the set of addresses. */
  version: 0,
  shape: 0,
  /** Whether all records have been read. */
  complete: false,
  /** `loading`, `live`, `polling`, `reconnecting`, `denied`. */
  link: 'loading',
  /** Why there is no connection. */
  problem: null,
  /** Everything up to here has been seen. */
  position: 0,
  /** The same with its timeline, if the service has timelines: `TIMELINE:POSITION`. */
  cursor: null,
  /** The last changes, oldest first. */
  changes: [],
  /** How many of them the user has asked for. */
  older: 0,
  /** How many changes were seen in each of the last seconds: second of the epoch -> count. */
  counts: new Map(),
  /** When the service was last heard. */
  heardAt: 0,
  /** How long the last change took from the write to the feed, and from the feed to here, in milliseconds. */
  lag: null,
  /** The last outcome to be announced: `{text, id}`. */
  notice: null,
};

const listeners = new Set();
const followers = new Map();
/** When a part of a record was last seen in the feed: address -> concern -> the number of the change, in the order of arrival. */
let seen = new Map();
let arrivals = 0;
let drawing = null;
let took = 0;

/** Draws the pages again, soon. */
export function touch() {
  drawing ??= setTimeout(() => {
    drawing = null;
    const start = performance.now();
    for (const listener of [...listeners]) listener();
    // The library draws before the next task.
    setTimeout(() => (took = performance.now() - start));
  }, Math.min(1000, Math.max(DRAW_AFTER, took / SHARE)));
}

/** Draws the component again whenever something has changed. */
export function useStore() {
  const [, set] = useState(0);
  // As in `usePlace`: an effect would miss what changes before it.
  useLayoutEffect(() => {
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
  Object.assign(state, { records: new Map(), order: [], complete: false, position: 0, cursor: null, changes: [], older: 0, lag: null });
  Object.assign(state, { counts: new Map(), version: state.version + 1, shape: state.shape + 1 });
  seen = new Map();
  touch();
}

/** Takes a page of records of a snapshot. */
export function takeRecords(records) {
  for (const record of records) state.records.set(record.address, record);
  state.order = [...state.records.keys()].sort(natural);
  state.version += 1;
  state.shape += 1;
  touch();
}

function put(address, record) {
  const known = state.records.has(address);
  state.version += 1;
  if (record) {
    state.records.set(address, record);
    if (known) return;
    state.order.splice(placeIn(state.order, address), 0, address);
  } else {
    if (!known) return;
    state.records.delete(address);
    state.order.splice(placeIn(state.order, address), 1);
  }
  state.shape += 1;
}

/** The moment before a record is read, for `takeRecord`. */
export const beforeReading = () => arrivals;

const CONCERNS = ['head', 'index', 'status', 'config'];

/**
 * Takes one record as it was read; `null` if it is unknown. What the feed has shown of it since `begun`, the moment before it was read,
 * stays: an answer may have been long under way. Returns the record as it is now known.
 */
export function takeRecord(address, record, begun = arrivals) {
  const since = (concern) => (seen.get(address)?.[concern] ?? 0) > begun;
  const known = state.records.get(address);
  // Created, purged, retracted or restored meanwhile: the feed knows better whether there is a record, and what it was.
  let taken = since('meta') ? (known ?? null) : record;
  if (taken && known && taken !== known) {
    const newer = CONCERNS.filter((concern) => known[concern] && since(concern));
    taken = newer.reduce((all, concern) => ({ ...all, [concern]: known[concern] }), taken);
    if (newer.length > 0 && known.updated_at > taken.updated_at) taken = { ...taken, updated_at: known.updated_at };
  }
  put(address, taken);
  touch();
  return taken;
}

/** Removes the records that a new snapshot no longer has. */
export function keepOnly(addresses) {
  for (const address of state.order) if (!addresses.has(address)) state.records.delete(address);
  state.order = state.order.filter((address) => addresses.has(address));
  for (const callbacks of followers.values()) for (const callback of callbacks) callback(null);
  state.version += 1;
  state.shape += 1;
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

/** What the meta of a record consists of, as far as it can go away: a change of it has all that is left. */
const OF_META = ['protected', 'dependencies'];

/** The record after a change of it. */
export function applied(record, change) {
  const next = { ...(record ?? unborn(change)), updated_at: change.occurred_at };
  const { concern, watermark, payload } = change;
  if (change.source_type) next.source_type = change.source_type;
  if (change.payload_omitted) return next;
  if (concern === 'meta') {
    for (const name of OF_META) delete next[name];
    Object.assign(next, payload);
  } else if (concern === 'head') next.head = payload ?? { id: null, t: 0 };
  else if (concern === 'index') next.index = payload ?? { id: null, t: 0, rev: 0 };
  else if (concern === 'status') next.status = { v: watermark, payload: payload ?? { state: 'ready' } };
  else if (concern === 'config') next.config = { v: watermark, payload: payload ?? null };
  return next;
}

/** The watermarks of these parts only grow, but for a reset: what was read may be ahead of the feed. */
const isBehind = (known, { concern, change, watermark }) =>
  (concern === 'head' || concern === 'index') && change === 'updated' && known?.[concern]?.t > watermark;

/** Applies changes in the order of the feed. Returns the addresses whose records have to be read again. */
export function takeChanges(changes) {
  const again = new Set();
  const now = Date.now();
  const second = Math.floor(now / 1000);
  for (const change of changes) {
    if (change.position <= state.position) continue;
    state.position = change.position;
    state.cursor = change.cursor ?? state.cursor;
    const { address, concern } = change;
    if (change.change === 'purged') {
      note(address, 'meta');
      put(address, null);
      again.delete(address);
    } else {
      const known = state.records.get(address);
      if (change.payload_omitted || (!known && concern !== 'meta')) again.add(address);
      if (!isBehind(known, change)) {
        // What was left out has to be read, so that reading it is no older than this change.
        if (!change.payload_omitted) note(address, concern);
        put(address, applied(known, change));
      }
    }
    const [occurred, recorded] = [Date.parse(change.occurred_at), Date.parse(change.recorded_at)];
    state.lag = { feed: Math.max(0, recorded - occurred), here: Math.max(0, now - recorded) };
    state.changes.push(change);
    state.counts.set(second, (state.counts.get(second) ?? 0) + 1);
    for (const callback of [...(followers.get(address) ?? [])]) callback(change);
  }
  const kept = KEPT_CHANGES + state.older;
  // Rarely, since each time copies them all.
  if (state.changes.length > kept + KEPT_CHANGES / 4) state.changes = state.changes.slice(-kept);
  for (const counted of state.counts.keys()) if (counted < second - COUNTED) state.counts.delete(counted);
  if (changes.length) touch();
  return again;
}

function note(address, concern) {
  arrivals += 1;
  const parts = seen.get(address) ?? {};
  parts[concern] = arrivals;
  seen.set(address, parts);
}

/** Changes a second over the last `seconds`, without the one that has just begun. */
export function rate(seconds = 10, now = Date.now()) {
  const second = Math.floor(now / 1000);
  let sum = 0;
  for (let at = second - seconds; at < second; at += 1) sum += state.counts.get(at) ?? 0;
  return sum / seconds;
}

/** Puts older changes before those that are known. Returns how many there were. */
export function takeOlder(changes) {
  const first = state.changes[0]?.position ?? Infinity;
  const older = changes.filter((change) => change.position < first && change.position <= state.position);
  state.older = Math.min(KEPT_OLDER, state.older + older.length);
  const second = Math.floor(Date.now() / 1000);
  for (const change of older) {
    const at = Math.floor(Date.parse(change.recorded_at) / 1000);
    if (at >= second - COUNTED && at <= second) state.counts.set(at, (state.counts.get(at) ?? 0) + 1);
  }
  const last = older.at(-1);
  // They were here before the page was: how long they took to it means nothing.
  if (last) state.lag ??= { feed: Math.max(0, Date.parse(last.recorded_at) - Date.parse(last.occurred_at)), here: null };
  state.changes = [...older, ...state.changes].slice(-(KEPT_CHANGES + state.older));
  touch();
  return older.length;
}

/** Whether the user may ask for more of them. */
export const mayHaveOlder = () => state.older < KEPT_OLDER && (state.changes[0]?.position ?? state.position + 1) > 1;

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

/** How many transactions the index of a ledger is behind its head. */
export const lagOf = (record) =>
  record.kind === 'ledger' && !record.retracted ? Math.max(0, (record.head?.t ?? 0) - (record.index?.t ?? 0)) : 0;
