// What is wrong, or soon will be: from the records, the state of the connection, and the figures of the service. The gravest first.

import { isBad } from './parts.js';
import { lagOf, leaseOf, stateOf } from './store.js';
import { toRecord, toRecords } from './place.js';

/** An index that is further behind than this is named. */
const MUCH_BEHIND = 10;
/** Replicas and read models that lag longer than this are named, in seconds. */
const LONG = 30;
/** How many records are named for the same reason. */
const NAMED = 3;

/** States that a program sets while it works, and that end with its lease. */
const WORKING = /(ing|lock(ed)?)$/i;

/** `{level: 'bad' | 'busy', text, address?, detail?, href?}` each. */
export function attention(records, { health, figures, now }) {
  const found = [];
  if (health && !health.ok) found.push({ level: 'bad', rank: 0, text: 'The service is not healthy', detail: health.reason });
  for (const it of figures ?? []) {
    if (it.name === 'nameservice_replica_age_seconds' && it.value > LONG) {
      found.push({ level: 'bad', rank: 1, text: `This replica is ${Math.round(it.value)} s behind its upstream` });
    } else if (it.name === 'nameservice_projection_lag_seconds' && it.value > LONG) {
      found.push({ level: 'bad', rank: 1, text: `${it.label || 'A read model'} is ${Math.round(it.value)} s behind the feed` });
    } else if (it.name === 'nameservice_feed_dead_letters_total' && it.value > 0) {
      found.push({ level: 'bad', rank: 1, text: `${it.value} stream records could not be read: nameservice aws deadletters list` });
    }
  }
  const [failed, expired, behind] = [[], [], []];
  for (const record of records.values()) {
    if (record.retracted) continue;
    const state = stateOf(record);
    if (isBad(state)) failed.push(record);
    const lease = leaseOf(record);
    if (lease && lease.expires_at * 1000 <= now) expired.push({ record, lease, state });
    if (lagOf(record) > MUCH_BEHIND) behind.push(record);
  }
  const each = (all, filter, name, say) => {
    for (const it of all.slice(0, NAMED)) found.push(say(it));
    if (all.length > NAMED) found.push({ ...say(all[0]), address: null, text: `${all.length - NAMED} more: ${name}`, detail: null, href: toRecords(filter) });
  };
  each(failed, { state: failed[0] && stateOf(failed[0]) }, 'records in a state of error', (record) => ({
    level: 'bad',
    rank: 2,
    address: record.address,
    href: toRecord(record.address),
    text: `is in state ${stateOf(record)}`,
    detail: reasonOf(record),
  }));
  each(expired, { leased: '1' }, 'leases that have expired', ({ record, lease, state }) => ({
    level: 'bad',
    rank: 3,
    address: record.address,
    href: toRecord(record.address),
    text: `${lease.name} of ${lease.holder} has expired`,
    detail: WORKING.test(state) ? `The state is still ${state}: whoever held the lease may have died.` : null,
    since: lease.expires_at * 1000,
  }));
  behind.sort((a, b) => lagOf(b) - lagOf(a));
  each(behind, { sort: '-behind' }, 'indexes that are behind', (record) => ({
    level: 'busy',
    rank: 4,
    address: record.address,
    href: toRecord(record.address),
    text: `has an index that is ${lagOf(record)} behind its head`,
  }));
  return found.sort((a, b) => a.rank - b.rank);
}

/** Why a record is in its state, if its status says so. */
function reasonOf({ status }) {
  const reason = status?.payload?.reason ?? status?.payload?.message ?? status?.payload?.error;
  return typeof reason === 'string' ? reason.slice(0, 300) : null;
}

/** The gauges that the page looks at, from the text of `/metrics`. */
export function figuresOf(text) {
  const found = [];
  for (const line of text.split('\n')) {
    const match = /^(nameservice_(?:replica_age_seconds|projection_lag_seconds|feed_dead_letters_total))(\{[^}]*\})? (\S+)$/.exec(line);
    if (match) found.push({ name: match[1], label: /="([^"]*)"/.exec(match[2] ?? '')?.[1] ?? '', value: Number(match[3]) });
  }
  return found;
}
