// What can be done to a record: the fields of each form, the value it depends on, and the request it sends.

import { inPath } from './api.js';
import { Exact, parse, stringify } from './json.js';

const unborn = { id: null, t: 0 };
const idAndT = (value) => ({ id: value?.id ?? null, t: value?.t ?? 0 });
/** An index as a push expects it. Its `rev` is not compared: the service counts the answer to a repeated push from it. */
const withRev = (value) => ({ ...idAndT(value), ...(value?.rev !== undefined && { rev: value.rev }) });
const isLease = (value) => value && typeof value === 'object' && 'holder' in value && 'expires_at' in value;
/** A payload without the leases that the service shows in it. */
export const withoutLeases = (payload) => Object.fromEntries(Object.entries(payload ?? {}).filter(([, value]) => !isLease(value)));
const pretty = (value) => stringify(value ?? {}, 2);

/** What is wrong with the input of one field. */
export class FieldError extends Error {
  constructor(field, message) {
    super(message);
    this.title = 'The input cannot be sent';
    this.field = field;
  }
}

export function wholeNumber(text, what, field) {
  if (!/^\d{1,15}$/.test(String(text).trim())) throw new FieldError(field, `${what} must be a whole number.`);
  return Number(text);
}

export function json(text, what, field) {
  let value;
  try {
    value = parse(text);
  } catch (error) {
    throw new FieldError(field, `${what} is not JSON: ${error.message}`);
  }
  if (value === null || typeof value !== 'object' || value instanceof Exact || Array.isArray(value)) {
    throw new FieldError(field, `${what} must be a JSON object.`);
  }
  return value;
}

/** The JSON in a text, for a comparison; the text itself if it is not JSON. */
const jsonOrText = (text) => {
  try {
    return parse(text);
  } catch {
    return text;
  }
};

const asMembers = (value) => (value && typeof value === 'object' && !(value instanceof Exact) ? value : { metadata: value });

/** What the service shows in place of a secret. */
const REDACTED = '[redacted]';

const ID_HELP = 'A content id: bagay… (a commit of Fluree), bagh… (an index root)';

const pointer = (concern, title, path, expected) => ({
  title,
  button: title,
  compares: true,
  replaces: ({ id, t }) => ({ id, t }),
  shown: (record) => expected(record[concern]),
  base: expected,
  initial: (record) => ({ id: '', t: String((record[concern]?.t ?? 0) + (concern === 'head' ? 1 : 0) || record.head?.t || 1) }),
  fields: () => [
    { name: 'id', of: 'new.id', label: 'Id', required: true, help: ID_HELP },
    { name: 't', of: 'new.t', label: 't', type: 'number', min: 1, required: true },
  ],
  mine: ({ id, t }) => ({ id: id || null, t: Number(t) || 0 }),
  request: ({ id, t }, base, record) => ({
    method: 'PUT',
    path: `${path}/${inPath(record.address)}`,
    body: { expected: base, new: { id: id.trim(), t: wholeNumber(t, 't', 't') } },
  }),
  done: (answer) => `${title}: t ${answer.value.t} is stored${answer.replayed ? ', and was before' : ''}.`,
});

const status = {
  title: 'Push status',
  button: 'Push status',
  compares: true,
  replaces: ({ v, payload }) => ({ v, payload }),
  shown: (record) => ({ v: record.status.v, payload: record.status.payload }),
  base: ({ v, payload }) => ({ v, payload }),
  initial: (record) => {
    const { state, ...meta } = withoutLeases(record.status.payload);
    return { state: state ?? 'ready', meta: pretty(meta) };
  },
  fields: () => [
    { name: 'state', of: 'new.payload.state', label: 'State', required: true },
    { name: 'meta', of: 'new.payload', label: 'Metadata, a JSON object', rows: 8 },
  ],
  mine: ({ state, meta }, base) => ({ v: base.v + 1, payload: { state, ...asMembers(jsonOrText(meta)) } }),
  request: ({ state, meta }, expected, record) => ({
    method: 'PUT',
    path: `statuses/${inPath(record.address)}`,
    body: { expected: { v: expected.v }, new: { payload: { ...json(meta, 'Metadata', 'meta'), state } } },
  }),
  done: (answer) => `Status ${answer.value.payload.state} is stored, v ${answer.value.v}.`,
};

const config = {
  title: 'Push config',
  button: 'Push config',
  compares: true,
  replaces: ({ v, payload }) => ({ v, payload }),
  shown: (record) => ({ v: record.config.v, payload: record.config.payload }),
  base: (actual) => (actual.config ? actual.config : { v: actual.v, payload: actual.payload }),
  initial: (record) => ({ config: pretty(record.config.payload) }),
  fields: () => [{ name: 'config', of: ['new.payload', 'config'], label: 'Config, a JSON object', rows: 12 }],
  mine: ({ config: text }, base) => ({ v: base.v + 1, payload: jsonOrText(text) }),
  request: ({ config: text }, expected, record) => {
    const payload = json(text, 'Config', 'config');
    if (text.includes(REDACTED)) {
      throw new FieldError('config', `Config holds ${REDACTED} in place of a secret that you may not see: storing it would lose the secret.`);
    }
    const address = inPath(record.address);
    if (record.kind === 'ledger') {
      return { method: 'PUT', path: `configs/${address}`, body: { expected: { v: expected.v }, new: { payload } } };
    }
    const { source_type, dependencies } = record;
    const body = { source_type, config: payload, dependencies: dependencies ?? [], expected_v: expected.v };
    return { method: 'PUT', path: `graph-sources/${address}`, body };
  },
  done: () => 'The config is stored.',
};

/** What an action on a whole record depends on. The status is not part of it, since each refresh of a lease changes that. */
const whole = (record) => ({
  retracted: record.retracted,
  protected: record.protected ?? false,
  head: idAndT(record.head),
  index: idAndT(record.index),
  config: record.config?.v ?? 0,
  branches: record.branches,
  dependents: record.dependents,
});

const onWhole = {
  shown: whole,
  base: (actual) => actual,
  replaces: null,
  initial: () => ({}),
  fields: () => [],
  mine: (_, base) => base,
};

const retract = {
  ...onWhole,
  title: 'Retract',
  button: 'Retract',
  danger: true,
  note: 'The record is kept, and accepts no pushes until it is restored.',
  initial: () => ({ reason: '' }),
  fields: () => [{ name: 'reason', of: 'reason', label: 'Reason' }],
  request: ({ reason }, _, record) => ({
    method: 'POST',
    path: `retractions/${inPath(record.address)}`,
    body: reason.trim() ? { reason: reason.trim() } : {},
  }),
  done: (_, record) => `${record.address} is retracted.`,
};

const restore = {
  ...onWhole,
  title: 'Restore',
  button: 'Restore',
  note: 'The record accepts pushes again.',
  request: (_, __, record) => ({ method: 'POST', path: `restorations/${inPath(record.address)}` }),
  done: (_, record) => `${record.address} is restored.`,
};

const protection = (title, isProtected, note, done) => ({
  ...onWhole,
  title,
  button: title,
  note,
  request: (_, __, record) => ({
    method: 'PUT',
    path: `protections/${inPath(record.address)}`,
    body: { protected: isProtected },
  }),
  done: (_, record) => `${record.address} ${done}.`,
});

const protect = protection(
  'Protect',
  true,
  'The record cannot be retracted, purged or reset until it is unprotected. For administrators.',
  'is protected',
);

const unprotect = protection(
  'Unprotect',
  false,
  'The record can be retracted, purged and reset again. For administrators.',
  'is no longer protected',
);

const reset = {
  ...onWhole,
  title: 'Reset',
  button: 'Reset',
  danger: true,
  note: 'Sets head and index to a given snapshot, backwards too. For administrators.',
  replaces: ({ head, index }) => ({ head, index }),
  initial: (record) => ({
    headId: record.head?.id ?? '',
    headT: String(record.head?.t ?? 0),
    indexId: record.index?.id ?? '',
    indexT: String(record.index?.t ?? 0),
  }),
  fields: () => [
    { name: 'headId', of: 'head.id', label: 'Id of the head', help: `${ID_HELP}; empty for none` },
    { name: 'headT', of: 'head.t', label: 't of the head', type: 'number', min: 0, required: true },
    { name: 'indexId', of: 'index.id', label: 'Id of the index', help: `${ID_HELP}; empty for none` },
    { name: 'indexT', of: 'index.t', label: 't of the index', type: 'number', min: 0, required: true },
  ],
  mine: ({ headId, headT, indexId, indexT }, base) => ({
    ...base,
    head: { id: headId || null, t: Number(headT) },
    index: { id: indexId || null, t: Number(indexT) },
  }),
  request: ({ headId, headT, indexId, indexT }, _, record) => ({
    method: 'POST',
    path: `resets/${inPath(record.address)}`,
    body: {
      head: headId.trim() ? { id: headId.trim(), t: wholeNumber(headT, 't of the head', 'headT') } : unborn,
      index: indexId.trim() ? { id: indexId.trim(), t: wholeNumber(indexT, 't of the index', 'indexT') } : unborn,
    },
  }),
  done: (_, record) => `${record.address} is reset.`,
};

const purge = {
  ...onWhole,
  title: 'Purge',
  button: 'Purge',
  danger: true,
  note: 'The record is deleted, with all its concerns. This cannot be undone.',
  initial: () => ({ typed: '' }),
  fields: () => [{ name: 'typed', label: 'Type the address to confirm', required: true }],
  ready: ({ typed }, record) => typed === record.address,
  request: (_, __, record) => ({ method: 'DELETE', path: `records/${inPath(record.address)}` }),
  done: (_, record) => `${record.address} is purged.`,
};

const branch = {
  title: 'Create a branch',
  button: 'Create',
  // The service decides: a branch begins at the given head, or at the one that its source has by then.
  compares: true,
  shown: (record) => idAndT(record.head),
  base: idAndT,
  initial: (record) => ({ branch: '', id: record.head?.id ?? '', t: String(record.head?.t ?? 0) }),
  fields: () => [
    { name: 'branch', of: ['branch', 'address'], label: 'Name of the branch', required: true },
    { name: 'id', of: 'at.id', label: 'Commit to start from', help: ID_HELP },
    { name: 't', of: 'at.t', label: 't of that commit', type: 'number', min: 0 },
  ],
  mine: ({ id, t }) => ({ id: id || null, t: Number(t) || 0 }),
  request: ({ branch: name, id, t }, _, record) => ({
    method: 'POST',
    path: 'branches',
    body: {
      name: record.name,
      branch: name.trim(),
      source: record.branch,
      ...(id.trim() && { at: { id: id.trim(), t: wholeNumber(t, 't', 't') } }),
    },
  }),
  done: (answer) => `${answer.address} is created.`,
};

export const actions = {
  head: pointer('head', 'Push head', 'heads', idAndT),
  index: pointer('index', 'Push index', 'indexes', withRev),
  status,
  config,
  retract,
  restore,
  protect,
  unprotect,
  reset,
  purge,
  branch,
};

const nothing = { shown: () => null, base: (actual) => actual, mine: (input) => input, compares: true };

export const creations = {
  ledger: {
    ...nothing,
    title: 'Create a ledger',
    button: 'Create',
    initial: () => ({ address: '', id: '', t: '', config: '' }),
    fields: () => [
      { name: 'address', of: 'address', label: 'Address', required: true, help: 'name:branch; a name alone means its branch main' },
      { name: 'id', of: 'head.id', label: 'First commit (optional)', help: ID_HELP },
      { name: 't', of: 'head.t', label: 't of that commit', type: 'number', min: 1 },
      { name: 'config', of: 'config', label: 'Config, a JSON object (optional)', rows: 5 },
    ],
    request: ({ address, id, t, config: text }) => ({
      method: 'POST',
      path: 'ledgers',
      body: {
        address: address.trim(),
        ...(id.trim() && { head: { id: id.trim(), t: wholeNumber(t, 't', 't') } }),
        ...(text.trim() && { config: json(text, 'Config', 'config') }),
      },
    }),
    done: (answer) => `${answer.address} is created.`,
  },
  graph_source: {
    ...nothing,
    title: 'Create a graph source',
    button: 'Create',
    initial: () => ({ address: '', type: 'f:Bm25Index', dependencies: '', config: '{}' }),
    fields: () => [
      { name: 'address', of: 'address', label: 'Address', required: true, help: 'name:branch; a name alone means its branch main' },
      { name: 'type', of: 'source_type', label: 'Type', required: true, help: 'f:Bm25Index, f:HnswIndex, f:IcebergMapping …' },
      { name: 'dependencies', of: 'dependencies', label: 'Depends on', rows: 3, help: 'One address per line' },
      { name: 'config', of: 'config', label: 'Config, a JSON object', rows: 6 },
    ],
    // Version 0 means that the graph source must not exist: an existing one is a conflict, and stays unchanged.
    request: ({ address, type, dependencies, config: text }) => ({
      method: 'PUT',
      path: `graph-sources/${inPath(address.trim())}`,
      body: {
        source_type: type.trim(),
        config: json(text, 'Config', 'config'),
        dependencies: dependencies.split('\n').map((line) => line.trim()).filter(Boolean),
        expected_v: 0,
      },
    }),
    done: (answer) => `${answer.address} is created.`,
  },
};
