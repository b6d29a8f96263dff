// The console's JSON, and the forms over it, without a browser: `node --test tests/console/`.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { actions } from '../../functions/console_get/assets/actions.js';
import { differences, equal } from '../../functions/console_get/assets/difference.js';
import { Exact, parse, stringify } from '../../functions/console_get/assets/json.js';

/** Texts of numbers, and whether the browser's own number has the same text. */
const NUMBERS = [
  ['0', true], ['-0', false], ['1', true], ['-1', true], ['1.5', true], ['-1.5', true], ['1.0', false], ['2147483648', true],
  ['9007199254740991', true], ['9007199254740992', true], ['9007199254740993', false], ['-9007199254740993', false],
  ['8293847239847239847', false], ['9223372036854775807', false], ['9223372036854775808', false], ['18446744073709551616', false],
  ['123456789012345678901234567890123456789', false], ['0.1', true], ['0.12345678901234567890123456789', false],
  ['1e-7', true], ['1E-7', false], ['1e400', false], ['-1e400', false], ['1e-400', false], ['1e2', false], ['0e0', false], ['5e-324', true],
];

test('every number is written as it was read, wherever it is', () => {
  for (const [number, isPlain] of NUMBERS) {
    for (const text of [number, `[${number}]`, `{"a":${number}}`, `{"a":[1,{"b":${number}},"${number}"],"c":${number}}`]) {
      assert.equal(stringify(parse(text)), text);
      const spaced = text.replaceAll(':', ' : ').replaceAll(',', ' ,\n\t').replaceAll('[', ' [ ');
      assert.equal(stringify(parse(spaced)), text);
    }
    const read = parse(number);
    assert.equal(read instanceof Exact, !isPlain, number);
    assert.equal(`${read}`, isPlain ? String(Number(number)) : number);
    // Calculations and comparisons use the nearest number.
    assert.equal(read - 0, Number(number) - 0);
  }
});

test('everything else is as the browser reads and writes it', () => {
  const values = [
    'null', 'true', 'false', '""', '"9007199254740993"', '"a\\"b\\\\"', '"\\u0000😀 ü"', '[]', '{}', '[[],{}]', '{"":1}',
    '{"__proto__":{"x":1},"constructor":2,"toString":3}', '{"a":"[1e400, -0, \\"x\\": 9007199254740993]"}',
  ];
  for (const text of values) {
    for (const whole of [text, `[${text},1e400]`]) {
      assert.equal(stringify(parse(whole)), whole);
      assert.equal(stringify(parse(stringify(parse(whole), 2))), whole);
    }
    assert.deepEqual(parse(text), JSON.parse(text));
    assert.equal(stringify(JSON.parse(text), 2), JSON.stringify(JSON.parse(text), null, 2));
  }
  const odd = { a: undefined, b: [undefined, () => 1], c: new Exact('1.0') };
  assert.equal(stringify(odd), '{"b":[null,null],"c":1.0}');
  assert.equal(stringify(parse('[1e400]')[0]), '1e400');
  for (const text of ['', '{', '[1,]', '01', '1e', '{"a":9007199254740993', '[9007199254740993,]', 'NaN', "{'a':1}", '-']) {
    assert.throws(() => parse(text), SyntaxError, text);
  }
  assert.throws(() => JSON.stringify(parse('[9007199254740993]')), TypeError, 'nothing rounds it by accident');
  // As deep as a payload may be, and a text of a megabyte.
  const deep = '['.repeat(60) + '1e400' + ']'.repeat(60);
  assert.equal(stringify(parse(deep)), deep);
  const long = JSON.stringify({ text: 'a\\"'.repeat(300_000), number: 1 }).replace(':1}', ':9007199254740993}');
  assert.equal(stringify(parse(long)), long);
});

test('numbers differ by their text', () => {
  const read = (text) => parse(`{"n":${text}}`);
  assert(equal(read('9007199254740993'), read('9007199254740993')));
  assert(!equal(read('9007199254740993'), read('9007199254740992')));
  assert.equal(differences(read('9007199254740993'), read('9007199254740995')).length, 1);
  assert.equal(differences(read('9007199254740993'), read('{"x":1}')).length, 1);
});

test('a form that reads, changes and writes a payload keeps every number', () => {
  for (const [number] of NUMBERS) {
    const address = 'mydb:main';
    const payload = `{"snapshot":${number},"list":[${number}],"schema":{"id":${number}}}`;
    const ledger = parse(`{"address":"${address}","kind":"ledger","config":{"v":3,"payload":${payload}}}`);
    const typed = actions.config.initial(ledger).config.replace('"snapshot"', '"renamed"');
    const push = actions.config.request({ config: typed }, actions.config.shown(ledger), ledger);
    const wanted = payload.replace('"snapshot"', '"renamed"');
    assert.equal(stringify(push.body), `{"expected":{"v":3},"new":{"payload":${wanted}}}`);
    assert.equal(stringify(actions.config.mine({ config: typed }, { v: 3 }).payload), wanted);

    const source = parse(`{"address":"${address}","kind":"graph_source","source_type":"t","config":{"v":3,"payload":${payload}}}`);
    const publication = actions.config.request({ config: payload }, actions.config.shown(source), source);
    assert.equal(stringify(publication.body), `{"source_type":"t","config":${payload},"dependencies":[],"expected_v":3}`);

    const record = parse(`{"address":"${address}","status":{"v":2,"payload":{"state":"ready","id":${number}}}}`);
    const { state, meta } = actions.status.initial(record);
    const status = actions.status.request({ state, meta }, actions.status.shown(record), record);
    assert.equal(stringify(status.body), `{"expected":{"v":2},"new":{"payload":{"id":${number},"state":"ready"}}}`);
    assert.throws(() => actions.config.request({ config: number }, { v: 1 }, ledger), /must be a JSON object/);
  }
  // A watermark that is no exact number of the browser is sent back as it was read.
  const ledger = parse('{"address":"a:main","kind":"ledger","config":{"v":9007199254740993,"payload":{}}}');
  const push = actions.config.request({ config: '{}' }, actions.config.shown(ledger), ledger);
  assert.equal(stringify(push.body), '{"expected":{"v":9007199254740993},"new":{"payload":{}}}');
});
