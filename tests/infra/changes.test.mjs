// The resolvers of AppSync's subscription: who may publish, and which changes a subscriber gets. AppSync's evaluation of filters
// follows its documentation here. Run with `node --test`.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { resolver } from './appsync.mjs';

const PUBLISHER = 'arn:aws:sts::123456789012:assumed-role/nameservice-stream_consumer/';
const publish = await resolver('publish', { publisher: PUBLISHER });
const { request, response, filters } = await resolver('changes');

const change = (address, rest = {}) => ({ position: 7, address, kind: 'LEDGER', sourceType: null, concern: 'HEAD', ...rest });

test('the consumer publishes, and nobody else', () => {
  const by = (userArn) => publish.request({ identity: { userArn }, args: { change: change('mydb:main') } });
  assert.deepEqual(by(`${PUBLISHER}nameservice-stream_consumer`), { payload: change('mydb:main') });
  for (const other of [
    'arn:aws:sts::123456789012:assumed-role/nameservice-stream_consumer_2/nameservice-stream_consumer',
    'arn:aws:sts::210987654321:assumed-role/nameservice-stream_consumer/nameservice-stream_consumer',
    'arn:aws:iam::123456789012:user/nameservice-stream_consumer/',
    'arn:aws:iam::123456789012:root',
    undefined,
  ]) {
    assert.throws(() => by(other), { type: 'Unauthorized' });
  }
  assert.deepEqual(publish.response({ result: change('mydb:main') }), change('mydb:main'));
});

/** The filter of a subscription, within the limits of AppSync. */
function filterOf(args) {
  filters.length = 0;
  assert.deepEqual(request({ args }), { payload: null });
  assert.equal(response({ args }), null, 'AppSync requires it');
  assert.equal(filters.length, 1, 'without a filter, AppSync compares the arguments themselves');
  const { filterGroup } = filters[0];
  let combinations = 0;
  for (const { filters: all } of filterGroup) {
    const fields = all.map(({ fieldName }) => fieldName);
    assert.ok(all.length > 0 && fields.length <= 5 && new Set(fields).size === fields.length);
    let alternatives = 1;
    for (const { operator, value } of all) {
      if (operator === 'in') {
        assert.ok(value.length <= 5);
        alternatives *= value.length;
      }
      [value].flat().forEach((one) => assert.ok(typeof one === 'number' || one.length <= 256));
    }
    combinations += alternatives;
  }
  assert.ok(combinations <= 10, `${combinations} combinations`);
  return filterGroup;
}

const OPERATORS = {
  eq: (member, value) => member === value,
  in: (member, value) => value.includes(member),
  gt: (member, value) => member > value,
  beginsWith: (member, value) => typeof member === 'string' && member.startsWith(value),
};

function passes(filterGroup, one) {
  const holds = ({ fieldName, operator, value }) => OPERATORS[operator](one[fieldName], value);
  return filterGroup.some(({ filters: all }) => all.every(holds));
}

const CHANGES = [
  change('mydb:main'),
  change('mydb:dev', { concern: 'STATUS' }),
  change('mydb2:main', { concern: 'CONFIG' }),
  change('tenant/a:main', { concern: 'INDEX' }),
  change('tenant/b:main', { concern: 'META' }),
  change('tenant/search:main', { kind: 'GRAPH_SOURCE', sourceType: 'f:Bm25Index' }),
];

test('a subscriber gets what it asks for', () => {
  const got = (args) => CHANGES.filter((one) => passes(filterOf(args), one)).map(({ address }) => address);
  const all = CHANGES.map(({ address }) => address);
  for (const [args, expected] of [
    [{}, all],
    [{ address: null, prefix: null, kind: null, sourceType: null, concern: null }, all],
    [{ address: [], concern: [] }, all],
    [{ address: ['*'] }, all],
    [{ address: ['nobody', '*'] }, all],
    [{ prefix: '' }, all],
    [{ concern: ['META', 'HEAD', 'INDEX', 'STATUS', 'CONFIG'] }, all],
    [{ address: ['mydb'] }, ['mydb:main']],
    [{ address: ['mydb:dev', 'nobody:main'] }, ['mydb:dev']],
    [{ address: ['mydb:*'] }, ['mydb:main', 'mydb:dev']],
    [{ address: ['mydb*'] }, ['mydb:main', 'mydb:dev', 'mydb2:main']],
    [{ address: ['mydb', 'tenant/*'] }, ['mydb:main', 'tenant/a:main', 'tenant/b:main', 'tenant/search:main']],
    [{ prefix: 'tenant/' }, ['tenant/a:main', 'tenant/b:main', 'tenant/search:main']],
    [{ prefix: 'tenant/', address: ['*'] }, ['tenant/a:main', 'tenant/b:main', 'tenant/search:main']],
    [{ prefix: 'tenant/', address: ['mydb', 'ten*'] }, ['tenant/a:main', 'tenant/b:main', 'tenant/search:main']],
    [{ prefix: 'ten', address: ['tenant/a', 'tenant/b*'] }, ['tenant/a:main', 'tenant/b:main']],
    [{ kind: 'GRAPH_SOURCE' }, ['tenant/search:main']],
    [{ sourceType: 'f:Bm25Index' }, ['tenant/search:main']],
    [{ sourceType: '' }, []],
    [{ concern: ['STATUS'] }, ['mydb:dev']],
    [{ concern: ['STATUS', 'CONFIG', 'STATUS'] }, ['mydb:dev', 'mydb2:main']],
    [{ concern: ['HEAD', 'INDEX', 'STATUS', 'CONFIG'], prefix: 'tenant/' }, ['tenant/a:main', 'tenant/search:main']],
    [{ address: ['mydb*'], kind: 'LEDGER', concern: ['HEAD'] }, ['mydb:main']],
    [{ address: ['tenant/*'], kind: 'GRAPH_SOURCE', sourceType: 'f:Bm25Index', concern: ['HEAD'] }, ['tenant/search:main']],
  ]) {
    assert.deepEqual(got(args), expected, JSON.stringify(args));
  }
});

test('as much as AppSync can filter by', () => {
  const names = (count) => Array.from({ length: count }, (_, i) => `db${i}`);
  assert.equal(filterOf({ address: names(10) }).length, 10);
  assert.equal(filterOf({ address: names(5), concern: ['HEAD', 'INDEX'] }).length, 5);
  assert.equal(filterOf({ address: names(40).concat('*'), concern: ['HEAD', 'INDEX', 'META', 'STATUS'] }).length, 1);
  filterOf({ prefix: 'x'.repeat(256) });
  filterOf({ address: [`${'x'.repeat(256)}*`] });
  for (const args of [
    { address: names(11) },
    { address: names(4), concern: ['HEAD', 'INDEX', 'STATUS'] },
    { address: ['x'.repeat(257)] },
    { prefix: 'x'.repeat(257) },
    { sourceType: 'x'.repeat(257) },
    { address: ['my?b'] },
    { address: ['*/books'] },
    { address: ['a*b*'] },
  ]) {
    assert.throws(() => response({ args }), { type: 'unsupported' }, JSON.stringify(args));
  }
  for (const args of [{ address: [''] }, { address: [' '] }, { address: ['a:b:c'] }, { address: ['mydb'], prefix: 'tenant/' }]) {
    assert.throws(() => response({ args }), { type: 'invalid-parameter' }, JSON.stringify(args));
  }
});

test('a name that has become an address is no longer than what AppSync compares', () => {
  filterOf({ address: ['x'.repeat(251)] });
  assert.throws(() => response({ args: { address: ['x'.repeat(252)] } }), { type: 'unsupported' });
});
