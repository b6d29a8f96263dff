// Orders, trees, addresses of pages, sentences and what is wrong, without a browser: `node --test tests/console/`.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { actions } from '../../functions/console_get/assets/actions.js';
import { attention, figuresOf } from '../../functions/console_get/assets/attention.js';
import { natural, placeIn } from '../../functions/console_get/assets/order.js';
import { placeOf } from '../../functions/console_get/assets/place.js';
import { brief, deed } from '../../functions/console_get/assets/sentence.js';
import { applied, beforeReading, clear, state, takeChanges, takeOlder, takeRecord, takeRecords } from '../../functions/console_get/assets/store.js';
import { rowsOf } from '../../functions/console_get/assets/tree.js';

test('the natural order is total, and counts', () => {
  const sorted = ['', '0', '00', '1', '01', '1a', '2', '10', '10:main', 'a', 'a0', 'a00', 'a2', 'a02b', 'a10', 'a9007199254740993', 'a9007199254740994', 'b', 'ä'];
  // Texts that differ by zeros alone are beside each other, in whatever order.
  const plain = (texts) => texts.map((it) => it.replace(/(?<!\d)0+(?=\d)/g, ''));
  assert.deepEqual(plain([...sorted].reverse().sort(natural)), plain(sorted));
  for (const a of sorted) {
    for (const b of sorted) {
      assert.equal(Math.sign(natural(a, b)) + Math.sign(natural(b, a)), 0, `${a} ${b}`);
      assert.equal(natural(a, b) === 0, a === b, `${a} ${b}`);
      for (const c of sorted) if (natural(a, b) < 0 && natural(b, c) < 0) assert(natural(a, c) < 0, `${a} ${b} ${c}`);
    }
  }
  const order = [...sorted].sort(natural);
  for (const it of order) assert.equal(order[placeIn(order, it)], it);
});

test('a tree has a row for each folder that is open, and none for folders of one', () => {
  const records = ['mydb:main', 'mydb:dev', 'a/b/c:main', 't/x-10:main', 't/x-2:main', 't/y/z:main'].map((address) => ({ address }));
  const rows = (open) => rowsOf(records, (path) => open.includes(path)).map(({ depth, label, count }) => `${' '.repeat(depth)}${label}${count ? ` ${count}` : ''}`);
  assert.deepEqual(rows([]), ['a/b/c:main', 'mydb 2', 't/ 3']);
  assert.deepEqual(rows(['mydb', 't/']), ['a/b/c:main', 'mydb 2', ' :dev', ' :main', 't/ 3', ' x-2:main', ' x-10:main', ' y/z:main']);
});

test('the address of a page names it, whatever is in it', () => {
  const at = (hash) => {
    const { page, address, params } = placeOf(hash);
    return [page, address, params.toString()];
  };
  assert.deepEqual(at(''), ['overview', undefined, '']);
  assert.deepEqual(at('#/nowhere'), ['overview', undefined, '']);
  assert.deepEqual(at('#/records?q=a%2Fb&sort=-head'), ['records', undefined, 'q=a%2Fb&sort=-head']);
  assert.deepEqual(at('#/record/tenant%2Fa%3Amain?compare=1'), ['record', 'tenant/a:main', 'compare=1']);
  assert.deepEqual(at('#/record/tenant/a'), ['record', 'tenant/a:main', '']);
  assert.deepEqual(at('#/record/a%3Fb%3Amain'), ['record', 'a?b:main', '']);
  assert.deepEqual(at('#/record/%E0%A4%A'), ['record', '%E0%A4%A:main', '']);
});

test('changes are sentences', () => {
  const lease = { holder: 'h', expires_at: 1 };
  for (const [change, sentence] of [
    [{ concern: 'meta', change: 'created', kind: 'ledger' }, 'created, a ledger'],
    [{ concern: 'meta', change: 'created', kind: 'ledger', payload: { source_branch: 'main' } }, 'created, a branch of main'],
    [{ concern: 'meta', change: 'purged', kind: 'ledger' }, 'purged'],
    [{ concern: 'head', change: 'updated', previous: 1, watermark: 2 }, 'head moved from t 1 to t 2'],
    [{ concern: 'head', change: 'reset', previous: 2, watermark: 1 }, 'head reset from t 2 to t 1'],
    [{ concern: 'index', change: 'updated', previous: 2, watermark: 2 }, 'index replaced at t 2'],
    [{ concern: 'status', change: 'updated', payload: { state: 'indexing', index_lock: lease } }, 'is indexing, index_lock is held by h'],
    [{ concern: 'config', change: 'updated', watermark: 3 }, 'config changed to v 3'],
    [{ concern: 'lease', change: 'released', payload: { name: 'n', holder: 'h' } }, 'lease released n of h'],
  ]) {
    assert.equal(deed(change), sentence);
  }
  assert.equal(brief({ concern: 'status', payload: { state: 'ready', index_lock: lease } }), '');
  assert.equal(brief({ concern: 'status', payload: { state: 'ready', progress: 1 } }), '{"progress":1}');
});

test('what is wrong comes in the order of its gravity', () => {
  const record = (address, state, more = {}) => [address, { address, kind: 'ledger', head: { t: 50 }, index: { t: 50 }, status: { payload: { state, ...more } } }];
  const records = new Map([
    record('a:main', 'ready'),
    record('b:main', 'indexing', { index_lock: { holder: 'h', expires_at: 10 } }),
    record('c:main', 'indexing', { index_lock: { holder: 'h', expires_at: 30 } }),
    record('d:main', 'error', { reason: 'disk' }),
  ]);
  records.get('a:main').index = { t: 5 };
  const figures = figuresOf('# HELP x\nnameservice_replica_age_seconds 45\nnameservice_projection_lag_seconds{projection="records"} 90\nnameservice_projection_lag_seconds{projection="fast"} 1\n');
  const found = attention(records, { health: { ok: false, reason: 'down' }, figures, now: 20_000 });
  assert.deepEqual(found.map(({ address, text, detail }) => [address, text, detail]), [
    [undefined, 'The service is not healthy', 'down'],
    [undefined, 'This replica is 45 s behind its upstream', undefined],
    [undefined, 'records is 90 s behind the feed', undefined],
    ['d:main', 'is in state error', 'disk'],
    ['b:main', 'index_lock of h has expired', 'The state is still indexing: whoever held the lease may have died.'],
    ['a:main', 'has an index that is 45 behind its head', undefined],
  ]);
  assert.deepEqual(attention(new Map([record('a:main', 'ready')]), { health: { ok: true }, figures: [], now: 0 }), []);
});

const change = (position, watermark, more = {}) => ({
  position, watermark, address: 'a:main', kind: 'ledger', name: 'a', branch: 'main', concern: 'head', change: 'updated',
  payload: { id: `id ${watermark}`, t: watermark }, occurred_at: '2026-01-01T00:00:00Z', recorded_at: '2026-01-01T00:00:00Z', ...more,
});
const readAt = (t) => ({ ...applied(undefined, change(0, t)), created_at: '2026-01-01T00:00:00Z' });

test('what a change of the meta no longer has is gone, before the record is read again', () => {
  clear();
  takeRecords([{ ...readAt(1), protected: true, dependencies: ['b:main'] }]);
  takeChanges([change(1, 0, { concern: 'meta', payload: { retracted: false } })]);
  // A form that is opened now must not be overtaken by the next answer.
  const known = () => [state.records.get('a:main').protected, state.records.get('a:main').dependencies];
  assert.deepEqual(known(), [undefined, undefined]);
  takeChanges([change(2, 0, { concern: 'meta', payload: { retracted: false, protected: true, dependencies: ['c:main'] } })]);
  assert.deepEqual(known(), [true, ['c:main']]);
});

test('a change of a graph source without a type leaves what it depends on', () => {
  clear();
  const payload = JSON.parse(readFileSync(new URL('../fixtures/graph-source-without-type.json', import.meta.url)));
  const source = { ...readAt(1), kind: 'graph_source', dependencies: ['mydb:main'] };
  takeRecords([source]);
  takeChanges([change(1, 0, { concern: 'meta', change: 'retracted', kind: 'graph_source', payload })]);
  assert.deepEqual(state.records.get('a:main').dependencies, source.dependencies);
  assert.equal(state.records.get('a:main').retracted, true);
});

test('a push of an index states the rev that it replaces, so that a repeated one can be answered', () => {
  const { index, head } = actions;
  const record = { address: 'a:main', head: { id: 'c', t: 9 }, index: { id: 'i', t: 5, rev: 2, graphs: { g: null } } };
  const sent = (action, base) => action.request({ id: 'n', t: '5' }, base, record).body.expected;
  assert.deepEqual(sent(index, index.shown(record)), { id: 'i', t: 5, rev: 2 });
  // After a conflict, the form continues from what the service has shown.
  assert.deepEqual(sent(index, index.base({ id: 'j', t: 5, rev: 3 })), { id: 'j', t: 5, rev: 3 });
  assert.deepEqual(sent(index, index.shown({ ...record, index: { id: null, t: 0, rev: 0 } })), { id: null, t: 0, rev: 0 });
  // One that is not known is not stated, and a head has none: there it would be rejected.
  assert.deepEqual(sent(index, index.shown({ ...record, index: { id: 'i', t: 5 } })), { id: 'i', t: 5 });
  assert.deepEqual(sent(head, head.shown({ ...record, head: { id: 'c', t: 9, rev: 1 } })), { id: 'c', t: 9 });
});

test('whichever of a read and the feed is late, the newer value stays', () => {
  clear();
  takeRecords([readAt(1)]);
  const begun = beforeReading();
  takeChanges([change(1, 5)]);
  assert.equal(takeRecord('a:main', { ...readAt(1), config: { v: 7, payload: {} } }, begun).head.t, 5);
  assert.equal(state.records.get('a:main').config.v, 7, 'what the feed has not shown is taken');
  // A read that is ahead of the feed.
  takeRecord('a:main', readAt(9));
  takeChanges([change(2, 6), change(3, 7)]);
  assert.equal(state.records.get('a:main').head.t, 9);
  takeChanges([change(4, 2, { change: 'reset' })]);
  assert.equal(state.records.get('a:main').head.t, 2);
  // Purged while it was read: it does not come back, and a successor is not the one that was read.
  const before = beforeReading();
  takeChanges([change(5, 0, { concern: 'meta', change: 'purged', payload: undefined })]);
  assert.equal(takeRecord('a:main', readAt(2), before), null);
  assert(!state.records.has('a:main') && !state.order.includes('a:main'));
});

test('older changes are kept beside those that arrive', () => {
  clear();
  state.position = 10_000;
  takeChanges(Array.from({ length: 2600 }, (_, n) => change(10_001 + n, n + 1)));
  assert(state.changes.length >= 2000 && state.changes.length <= 2600);
  const first = state.changes[0].position;
  const older = Array.from({ length: 500 }, (_, n) => change(first - 500 + n, 1));
  assert.equal(takeOlder(older), 500);
  assert.equal(state.changes[0].position, first - 500);
  takeChanges([change(state.position + 1, 1)]);
  assert.equal(state.changes[0].position, first - 500);
});
