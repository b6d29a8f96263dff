// The resolver of AppSync's lists: what it asks of DynamoDB, and what it makes of the answer. Run with `node --test`.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { resolver, source } from './appsync.mjs';

const { request, response } = await resolver('rows');

const call = (fieldName, args, rest = {}) => ({ info: { fieldName }, args, ...rest });
const END = String.fromCodePoint(0x10ffff);

test('each list is one query of its index', () => {
  for (const [field, args, index, key, value] of [
    ['recordsByKind', { kind: 'LEDGER' }, 'by-kind', 'kind', 'ledger'],
    ['recordsByKind', { kind: 'GRAPH_SOURCE' }, 'by-kind', 'kind', 'graph_source'],
    ['recordsByState', { state: 'ready' }, 'by-state', 'state', 'ready'],
    ['recordsBySourceType', { sourceType: 'f:Bm25Index' }, 'by-type', 'source_type', 'f:Bm25Index'],
    ['recordsByHolder', { holder: 'one' }, 'by-holder', 'holder', 'one'],
    ['indexDue', {}, 'by-due', 'due', 'index'],
  ]) {
    const made = request(call(field, args));
    assert.equal(made.operation, 'Query');
    assert.deepEqual([made.index, made.limit], [index, 51]);
    assert.deepEqual(made.query.expressionNames, { '#key': key, '#address': 'address' });
    assert.deepEqual(made.query.expressionValues, { ':value': { S: value }, ':begin': { S: ' ' }, ':end': { S: END } });
  }
});

test('a page begins after its cursor and stays within the prefix', () => {
  const cursor = Buffer.from('tenant/größe:main').toString('base64');
  const range = (args) => {
    const { ':begin': begin, ':end': end } = request(call('indexDue', args)).query.expressionValues;
    return [begin.S, end.S];
  };
  assert.deepEqual(range({ prefix: 'tenant/' }), ['tenant/', 'tenant/' + END]);
  assert.deepEqual(range({ prefix: 'tenant/', after: cursor }), ['tenant/größe:main\u0000', 'tenant/' + END]);
  assert.deepEqual(range({ after: cursor }), ['tenant/größe:main\u0000', END]);
  for (const args of [{ prefix: 'other', after: cursor }, { after: '!!!' }]) {
    assert.throws(() => request(call('indexDue', args)), { type: 'invalid-cursor' });
  }
  for (const args of [{ first: 0 }, { first: 201 }]) {
    assert.throws(() => request(call('indexDue', args)), { type: 'invalid-parameter' });
  }
  assert.throws(() => request(call('recordsByHolder', { holder: '' })), { type: 'invalid-parameter' });
  assert.equal(request(call('indexDue', { first: 200 })).limit, 201);
});

const item = (name) => ({
  address: `${name}:main`, version: 7, kind: 'ledger', name, branch: 'main', retracted: false, commit_id: 'bafy', commit_t: 3,
  index_t: 0, state: 'ready', status_v: 1, config_v: 0, index_threshold: 1, due: 'index', created_at: 1,
});

test('rows become edges, and what follows shows', () => {
  const items = ['a', 'b', 'c'].map(item);
  const page = response(call('indexDue', { first: 2 }, { result: { items, nextToken: null } }));
  assert.deepEqual(page.edges.map(({ node }) => node.address), ['a:main', 'b:main']);
  assert.deepEqual(page.nodes, page.edges.map(({ node }) => node));
  assert.deepEqual(page.pageInfo, {
    hasPreviousPage: false, hasNextPage: true, startCursor: page.edges[0].cursor, endCursor: page.edges[1].cursor,
  });
  assert.equal(request(call('indexDue', { after: page.pageInfo.endCursor })).query.expressionValues[':begin'].S, 'b:main\u0000');
  assert.deepEqual(page.edges[0].node, {
    address: 'a:main', kind: 'LEDGER', name: 'a', branch: 'main', retracted: false, sourceBranch: null, sourceType: null,
    dependencies: [], commitId: 'bafy', commitT: 3, indexId: null, indexT: 0, state: 'ready', statusV: 1, configV: 0, lease: null,
    holder: null, leaseExpiresAt: null, indexThreshold: 1, isIndexDue: true,
  });
  const last = response(call('indexDue', { first: 3, after: 'x' }, { result: { items, nextToken: null } }));
  assert.deepEqual([last.edges.length, last.pageInfo.hasNextPage, last.pageInfo.hasPreviousPage], [3, false, true]);
  const cut = response(call('indexDue', { first: 9 }, { result: { items, nextToken: 'more' } }));
  assert.equal(cut.pageInfo.hasNextPage, true);
  const none = response(call('indexDue', {}, { result: { items: [], nextToken: null } }));
  assert.deepEqual([none.edges, none.pageInfo.endCursor, none.pageInfo.hasNextPage], [[], null, false]);
});

test('the resolver knows every list of the schema, and every member of a row', () => {
  const schema = source('schema.graphql');
  const fieldsOf = (type) => {
    const body = schema.split(`type ${type} {`)[1].split('\n}')[0].replace(/"""[^]*?"""/g, '').replace(/\([^]*?\):/g, ':');
    return [...body.matchAll(/^ {2}(\w+):/gm)].map(([, name]) => name).sort();
  };
  const page = response(call('indexDue', {}, { result: { items: [item('a')] } }));
  assert.deepEqual(Object.keys(page.edges[0].node).sort(), fieldsOf('RecordRow'));
  assert.deepEqual(Object.keys(page).sort(), fieldsOf('RecordRowConnection'));
  assert.deepEqual(Object.keys(page.pageInfo).sort(), fieldsOf('PageInfo'));
  const args = { kind: 'LEDGER', state: 'x', sourceType: 'x', holder: 'x' };
  fieldsOf('Query').forEach((field) => assert.equal(request(call(field, args)).operation, 'Query'));
});

test('an error of DynamoDB is passed on', () => {
  const error = { message: 'slow down', type: 'DynamoDB:ThrottlingException' };
  assert.throws(() => response(call('indexDue', {}, { error })), error);
});
