// Loads resolvers of AppSync outside AppSync: its module of helpers is replaced by one that does the same.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

const MODULE = new URL('../../infra/modules/graphql/', import.meta.url);
const IMPORT = /^import \{ [a-z, ]+ \} from '@aws-appsync\/utils';$/gm;
const HELPERS = `
class Refused extends Error {}
const value = (one) => (typeof one === 'number' ? { N: String(one) } : { S: one });
const util = {
  error(message, type) { throw Object.assign(new Refused(message), { type }); },
  unauthorized() { throw Object.assign(new Refused('Unauthorized'), { type: 'Unauthorized' }); },
  base64Encode: (text) => Buffer.from(text).toString('base64'),
  base64Decode: (text) => Buffer.from(text, 'base64').toString(),
  dynamodb: { toMapValues: (map) => Object.fromEntries(Object.entries(map).map(([name, one]) => [name, value(one)])) },
};
export const filters = [];
const extensions = { setSubscriptionFilter: (filter) => { filters.push(filter); } };`;

export function source(path) {
  return readFileSync(new URL(path, MODULE), 'utf8');
}

/** The functions of a resolver, and the `filters` that it has set. `values` are those that Terraform puts in. */
export function resolver(name, values = {}) {
  const put = source(`resolvers/${name}.js`).replace(/\$\{(\w+)\}/g, (whole, value) => values[value] ?? whole);
  assert.equal(put.match(IMPORT)?.length, 1);
  return import(`data:text/javascript,${encodeURIComponent(put.replace(IMPORT, HELPERS))}`);
}
