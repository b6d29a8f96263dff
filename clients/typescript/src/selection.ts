/** Which records a reader asks for: of a snapshot the same as of the changes. */
import type { components, operations } from "./schema.js";

/** The filters of `events` that are of records. */
export type RecordFilters = Pick<
  NonNullable<operations["change_stream"]["parameters"]["query"]>,
  "address" | "prefix" | "kind" | "source_type"
>;

/**
 * Returns what applies filters to a snapshot, for which the service has only `prefix`: the prefix to request, the longest that what is
 * asked for has for certain, and whether a record is asked for.
 */
export function selectionOf({ address = [], prefix = "", kind, source_type }: RecordFilters) {
  // A pattern without a branch and a wildcard is of `main`.
  const patterns = [address].flat().map((pattern) => (/[:*?]/.test(pattern) ? pattern : `${pattern}:main`));
  const matchers = patterns.map(matcher);
  const fixed = patterns.map((pattern) => pattern.split(/[*?]/, 1)[0]!);
  const shared = fixed.length ? fixed.reduce(commonPrefix) : "";
  return {
    prefix: shared.length > prefix.length ? shared : prefix,
    has: (record: components["schemas"]["Record"]) =>
      record.address.startsWith(prefix) &&
      (kind === undefined || record.kind === kind) &&
      (source_type === undefined || record.source_type === source_type) &&
      (matchers.length === 0 || matchers.some((matches) => matches.test(record.address))),
  };
}

/** Returns what two texts begin with, in whole characters: half of one cannot be sent. */
function commonPrefix(one: string, other: string): string {
  const [letters, others] = [[...one], [...other]];
  const end = letters.findIndex((letter, n) => letter !== others[n]);
  return end < 0 ? one : letters.slice(0, end).join("");
}

/** Returns the expression for a pattern of addresses: `*` is any characters, `?` is one. */
function matcher(pattern: string): RegExp {
  const [first = "", ...parts] = pattern.split("*").map((part) => part.replace(/[\\^$.+()[\]{}|]/g, "\\$&").replaceAll("?", "."));
  const last = parts.pop();
  // What is between two `*` is looked for once, and kept where it first occurs, so that no pattern takes long.
  const middle = parts.map((part, n) => `(?=(.*?${part}))\\${n + 1}`).join("");
  return new RegExp(last === undefined ? `^${first}$` : `^${first}${middle}.*${last}$`, "su");
}
