// A change of the feed as a sentence: "mydb:main created by ci-bot".

import { withoutLeases } from './actions.js';
import { stringify } from './json.js';
import { html } from './lib.js';
import { Address } from './parts.js';
import { leaseOf } from './store.js';

const KINDS = { ledger: 'ledger', graph_source: 'graph source' };

/** What has happened to the record, after its address. */
export function deed({ concern, change, watermark, previous, payload, kind, source_type }) {
  const what = source_type ?? KINDS[kind] ?? kind;
  if (concern === 'meta') {
    if (change === 'created') return `created${payload?.source_branch ? `, a branch of ${payload.source_branch}` : `, a ${what}`}`;
    if (change === 'retracted') return payload?.reason ? `retracted: ${payload.reason}` : 'retracted';
    if (change !== 'updated') return change;
    return payload?.protected === true ? 'protected' : 'has other properties';
  }
  if (concern === 'head' || concern === 'index') {
    if (change === 'created') return `${concern} set to t ${watermark}`;
    if (change === 'reset') return `${concern} reset${previous === undefined ? '' : ` from t ${previous}`} to t ${watermark}`;
    if (change !== 'updated') return `${concern} ${change}`;
    if (previous === watermark) return `${concern} replaced at t ${watermark}`;
    return `${concern} moved${previous === undefined ? '' : ` from t ${previous}`} to t ${watermark}`;
  }
  if (concern === 'status') {
    if (change !== 'updated' && change !== 'created') return `status ${change}`;
    const lease = leaseOf({ status: { payload } });
    const held = lease ? `, ${lease.name} is held by ${lease.holder}` : '';
    return payload ? `is ${payload.state ?? 'of unknown state'}${payload.reason ? ` (${payload.reason})` : ''}${held}` : 'has another status';
  }
  if (concern === 'config') {
    if (change === 'created') return 'config set';
    return change === 'updated' ? `config changed to v ${watermark}` : `config ${change}`;
  }
  // A part that this page does not know yet.
  return `${concern} ${change}${payload?.name ? ` ${payload.name}` : ''}${payload?.holder ? ` of ${payload.holder}` : ''}`;
}

/** The value of a change, in one line. */
export function brief({ payload, payload_omitted, concern }) {
  if (payload_omitted) return 'large';
  if (payload === undefined || payload === null) return '';
  if (concern === 'head' || concern === 'index') return String(payload.id ?? 'none');
  if (concern === 'meta' && Object.keys(payload).length === 1 && payload.retracted === false) return '';
  if (concern === 'status') {
    // The sentence says the rest.
    const { state, reason, ...more } = withoutLeases(payload);
    return Object.keys(more).length > 0 ? stringify(more) : '';
  }
  return stringify(payload);
}

/** Who made a change, if the service shows it. */
export const author = (change) => change.by?.subject ?? change.by?.client ?? null;

export const Sentence = ({ change }) => {
  const by = author(change);
  return html`<${Address} address=${change.address} /> <bdi>${deed(change)}</bdi>${by && html` by <strong class="by"><bdi>${by}</bdi></strong>`}`;
};

/** The concern of a change and how grave it is, as the colour of its mark. */
export const markOf = ({ change, concern }) =>
  change === 'purged' || change === 'reset' || change === 'retracted' ? 'bad' : change === 'created' || change === 'restored' ? 'good' : concern === 'status' ? 'busy' : 'plain';
