/**
 * Which changes a subscriber gets: the arguments as a filter of AppSync, which it evaluates for each change that is published. What its
 * filters cannot say is rejected.
 *
 * Runs in AppSync (APPSYNC_JS), without a data source, when a subscription begins.
 */
import { extensions, util } from '@aws-appsync/utils';

/** Limits of AppSync's filters: characters of a text, and combinations of an address and a concern. */
const MOST_CHARACTERS = 256;
const MOST_COMBINATIONS = 10;
/** How many concerns there are. */
const CONCERNS = 5;

function condition(fieldName, operator, value) {
  return { fieldName, operator, value };
}

function short(name, text) {
  if (text.length > MOST_CHARACTERS) {
    util.error(`${name}: AppSync compares at most ${MOST_CHARACTERS} characters; give a shorter beginning`, 'unsupported');
  }
  return text;
}

/** What an address must equal or begin with. A name without a branch means its branch `main`. */
function pattern(text) {
  if (text.trim() === '' || text.split(':').length > 2) {
    util.error('address: is no address, `name:branch`', 'invalid-parameter');
  }
  const end = text.length - 1;
  const star = text.indexOf('*');
  if (text.includes('?') || (star !== -1 && star !== end)) {
    util.error('address: AppSync has no patterns but those that end with their only `*`', 'unsupported');
  }
  if (star === end) {
    return { operator: 'beginsWith', value: short('address', text.slice(0, end)) };
  }
  return { operator: 'eq', value: short('address', text.includes(':') ? text : `${text}:main`) };
}

/** What an address must be: alternatives, each a list of conditions. */
function addresses(args) {
  const prefix = short('prefix', args.prefix ?? '');
  const patterns = (args.address ?? []).map((address) => pattern(address));
  const asked = patterns.length > 0 ? patterns : [{ operator: 'beginsWith', value: '' }];
  const left = [];
  for (const { operator, value } of asked) {
    if (value.startsWith(prefix)) {
      left.push({ operator, value });
    } else if (operator === 'beginsWith' && prefix.startsWith(value)) {
      left.push({ operator, value: prefix });
    }
  }
  if (left.length === 0) {
    util.error('address: none of them begins with the prefix', 'invalid-parameter');
  }
  const everything = left.some((one) => one.value === '');
  return everything ? [[]] : left.map((one) => [condition('address', one.operator, one.value)]);
}

/** What the concern must be, and how many combinations that makes with each address. */
function concerns(args) {
  const asked = (args.concern ?? []).filter((one, place, all) => all.indexOf(one) === place);
  if (asked.length === 0 || asked.length === CONCERNS) {
    return { conditions: [], count: 1 };
  }
  if (asked.length === 1) {
    return { conditions: [condition('concern', 'eq', asked[0])], count: 1 };
  }
  return { conditions: [condition('concern', 'in', asked)], count: asked.length };
}

export function request() {
  return { payload: null };
}

export function response(ctx) {
  const { args } = ctx;
  const either = addresses(args);
  const { conditions, count } = concerns(args);
  if (either.length * count > MOST_COMBINATIONS) {
    const most = `at most ${MOST_COMBINATIONS} combinations of an address and a concern`;
    util.error(`address, concern: AppSync filters by ${most}; use more subscriptions`, 'unsupported');
  }
  const kind = args.kind ? [condition('kind', 'eq', args.kind)] : [];
  const type = args.sourceType ?? null;
  const each = [...kind, ...(type === null ? [] : [condition('sourceType', 'eq', short('sourceType', type))]), ...conditions];
  const filterGroup = either.map((address) => {
    const filters = [...address, ...each];
    // Without a filter, AppSync compares arguments with members of the same names. Every position is above 0.
    return { filters: filters.length > 0 ? filters : [condition('position', 'gt', 0)] };
  });
  extensions.setSubscriptionFilter({ filterGroup });
  return null;
}
