// Records as a tree by the `/` and the `:` of their addresses.

import { natural } from './order.js';

/** `tenant/a/orders:main` -> `['tenant/', 'a/', 'orders', ':main']`: the parts of an address, each with what separates it. */
function partsOf(address) {
  const colon = address.lastIndexOf(':');
  const [name, branch] = colon < 0 ? [address, ''] : [address.slice(0, colon), address.slice(colon)];
  const parts = name.split(/(?<=\/)/);
  return branch ? [...parts, branch] : parts;
}

const folder = (path, label) => ({ path, label, below: new Map(), record: null, count: 0 });

/** The tree of these records. */
function grown(records) {
  const root = folder('', '');
  for (const record of records) {
    let at = root;
    let path = '';
    at.count += 1;
    for (const part of partsOf(record.address)) {
      path += part;
      let next = at.below.get(part);
      if (!next) at.below.set(part, (next = folder(path, part)));
      next.count += 1;
      at = next;
    }
    at.record = record;
  }
  return root;
}

/** Folders with one entry are drawn with it, as one row: `tenant/a/`, `orders:main`. */
function joined(node) {
  let [at, label] = [node, node.label];
  while (!at.record && at.below.size === 1) {
    const [only] = at.below.values();
    at = only;
    label += at.label;
  }
  return { at, label };
}

/**
 * The rows of a tree as far as it is open, in natural order: `{key, depth, label, record}` for a record, and `{key, depth, label, path,
 * count, isOpen}` for a folder. `isOpen(path, count)` decides.
 */
export function rowsOf(records, isOpen) {
  const rows = [];
  const visit = (node, depth) => {
    const children = [...node.below.values()].sort((a, b) => natural(a.label, b.label));
    for (const child of children) {
      const { at, label } = joined(child);
      if (at.record) {
        rows.push({ key: at.record.address, depth, label, record: at.record });
      } else {
        const open = isOpen(at.path, at.count);
        rows.push({ key: `folder ${at.path}`, depth, label, path: at.path, count: at.count, isOpen: open });
        if (open) visit(at, depth + 1);
      }
    }
  };
  visit(grown(records), 0);
  return rows;
}
