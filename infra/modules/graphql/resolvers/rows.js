/**
 * The lists of the read model: each is one Query of one index of its table, by address.
 *
 * Runs in AppSync (APPSYNC_JS), for every field of `Query`.
 */
import { util } from '@aws-appsync/utils';

/** By field: the index, its key, and the argument with the value; without one, it is `index`. */
const LISTS = {
  recordsByKind: { index: 'by-kind', key: 'kind', argument: 'kind' },
  recordsByState: { index: 'by-state', key: 'state', argument: 'state' },
  recordsBySourceType: { index: 'by-type', key: 'source_type', argument: 'sourceType' },
  recordsByHolder: { index: 'by-holder', key: 'holder', argument: 'holder' },
  indexDue: { index: 'by-due', key: 'due' },
};
/** The kinds in the schema, by those in the table. */
const KINDS = { ledger: 'LEDGER', graph_source: 'GRAPH_SOURCE' };

const MOST = 200;
const DEFAULT = 50;
/** After every address that begins with the same. */
const END = '\u{10FFFF}';

function first(args) {
  return args.first ?? DEFAULT;
}

/** The first address that the page may have: those after a cursor begin with the smallest text that follows it. */
function begin(prefix, after) {
  if (!after) {
    return prefix === '' ? ' ' : prefix;
  }
  const address = util.base64Decode(after);
  if (address === '' || !address.startsWith(prefix)) {
    util.error('the cursor is not one of this list', 'invalid-cursor');
  }
  return address + '\u0000';
}

/** What the key of a list must be. */
function wanted(argument, args) {
  if (!argument) {
    return 'index';
  }
  if (argument === 'kind') {
    return args.kind === KINDS.ledger ? 'ledger' : 'graph_source';
  }
  return args[argument];
}

export function request(ctx) {
  const { index, key, argument } = LISTS[ctx.info.fieldName];
  const value = wanted(argument, ctx.args);
  const count = first(ctx.args);
  if (count < 1 || count > MOST) {
    util.error(`first: must be between 1 and ${MOST}`, 'invalid-parameter');
  }
  if (value === '') {
    util.error(`${argument}: is empty`, 'invalid-parameter');
  }
  const prefix = ctx.args.prefix ?? '';
  return {
    operation: 'Query',
    index,
    query: {
      expression: '#key = :value AND #address BETWEEN :begin AND :end',
      expressionNames: { '#key': key, '#address': 'address' },
      expressionValues: util.dynamodb.toMapValues({
        ':value': value,
        ':begin': begin(prefix, ctx.args.after),
        ':end': prefix + END,
      }),
    },
    // One more than the page, to know whether others follow.
    limit: count + 1,
    scanIndexForward: true,
  };
}

function row(item) {
  return {
    address: item.address,
    kind: KINDS[item.kind],
    name: item.name,
    branch: item.branch,
    retracted: item.retracted,
    sourceBranch: item.source_branch ?? null,
    sourceType: item.source_type ?? null,
    dependencies: item.dependencies ?? [],
    commitId: item.commit_id ?? null,
    commitT: item.commit_t,
    indexId: item.index_id ?? null,
    indexT: item.index_t,
    state: item.state ?? '',
    statusV: item.status_v,
    configV: item.config_v,
    lease: item.lease ?? null,
    holder: item.holder ?? null,
    leaseExpiresAt: item.lease_expires_at ?? null,
    indexThreshold: item.index_threshold,
    isIndexDue: item.due === 'index',
  };
}

export function response(ctx) {
  if (ctx.error) {
    util.error(ctx.error.message, ctx.error.type);
  }
  const { items, nextToken } = ctx.result;
  const count = first(ctx.args);
  const edges = items.slice(0, count).map((item) => ({ cursor: util.base64Encode(item.address), node: row(item) }));
  return {
    edges,
    nodes: edges.map((edge) => edge.node),
    pageInfo: {
      hasPreviousPage: !!ctx.args.after,
      // A page of DynamoDB also ends at 1 MB.
      hasNextPage: items.length > count || !!nextToken,
      startCursor: edges.length > 0 ? edges[0].cursor : null,
      endCursor: edges.length > 0 ? edges[edges.length - 1].cursor : null,
    },
  };
}
