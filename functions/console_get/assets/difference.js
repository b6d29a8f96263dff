// The difference of two JSON values, path by path.

import { Exact, stringify } from './json.js';

const isObject = (value) => value !== null && typeof value === 'object' && !(value instanceof Exact);
const same = (a, b) => stringify(a) === stringify(b);

/** The members that differ: `{path, change: 'added' | 'removed' | 'changed', before, after}`, sorted by path. */
export function differences(before, after, path = '') {
  if (isObject(before) && isObject(after) && Array.isArray(before) === Array.isArray(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
    return names.flatMap((name) => differences(before[name], after[name], path ? `${path}.${name}` : name));
  }
  if (before === undefined && after === undefined) return [];
  if (before === undefined) return [{ path, change: 'added', after }];
  if (after === undefined) return [{ path, change: 'removed', before }];
  return same(before, after) ? [] : [{ path, change: 'changed', before, after }];
}

/** Whether two values are the same, whatever the order of their members. */
export const equal = (before, after) => differences(before, after).length === 0;
