/**
 * JSON whose numbers are never changed silently. An integer beyond ±(2^53 - 1), such as an id of a snapshot, is a `bigint`;
 * any other number that no double equals (`1e400`, a decimal of 30 digits) is a `JsonNumber`. All others are numbers.
 */

/** A number that no double equals, as its text. */
export class JsonNumber {
  constructor(readonly text: string) {
    JSON.parse(`[${text}]`);
    if (!NUMBER.test(text)) throw new SyntaxError(`${text} is no number of JSON`);
    Object.freeze(this);
  }

  /** The nearest double. */
  valueOf(): number {
    return Number(this.text);
  }

  toString(): string {
    return this.text;
  }

  /** `JSON.stringify` would write another number, as it would of a `bigint`. */
  toJSON(): never {
    throw new TypeError("Do not know how to serialize a JsonNumber: use stringify of nameservice-client");
  }
}

const NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([-+]?\d+))?$/;
/** Whether a text may have a number that `JSON.parse` changes: many digits, a point, or an exponent. Times in texts do not match. */
const SUSPICIOUS = /(?:^|[:[,])\s*-?(?:\d{16}|\d+[.eE])/;

/** A number as its digits and its exponent, the same for all texts of one number. */
function value(text: string): string {
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = NUMBER.exec(text) ?? [];
  const digits = (whole + fraction).replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  if (significant === "") return "0";
  return `${sign}${significant}e${BigInt(exponent) + BigInt(digits.length - significant.length - fraction.length)}`;
}

function numberOf(text: string): number | bigint | JsonNumber {
  const double = Number(text);
  if (/^-?\d+$/.test(text)) return Number.isSafeInteger(double) ? double : BigInt(text);
  return Number.isFinite(double) && value(String(double)) === value(text) ? double : new JsonNumber(text);
}

/** Returns the value of a JSON text, as `JSON.parse` does, except for the numbers that it would change. */
export function parse(text: string): unknown {
  // Reports what is wrong with the text; what follows relies on a right one.
  const plain = JSON.parse(text) as unknown;
  return SUSPICIOUS.test(text) ? exact(text) : plain;
}

function exact(text: string): unknown {
  const token = /\s*("[^"\\]*(?:\\.[^"\\]*)*"|[-+.\w]+|[^\s])/gy;
  const next = () => token.exec(text)?.[1] ?? "";
  const read = (first: string): unknown => {
    if (first === "[") {
      const all: unknown[] = [];
      for (let at = next(); at !== "]"; at = next()) if (at !== ",") all.push(read(at));
      return all;
    }
    if (first === "{") {
      const all: [string, unknown][] = [];
      for (let at = next(); at !== "}"; at = next()) {
        if (at === ",") continue;
        next();
        all.push([JSON.parse(at) as string, read(next())]);
      }
      // Defines members, whatever their names: an assignment to `__proto__` would not.
      return Object.fromEntries(all);
    }
    return /^[-\d]/.test(first) ? numberOf(first) : JSON.parse(first);
  };
  return read(next());
}

/**
 * Returns the JSON text of a value, as `JSON.stringify` does, with every digit of a `bigint` or `JsonNumber`. A number that is
 * infinite or none has no text, and throws.
 */
export function stringify(value: unknown): string {
  const text = write(value);
  if (text === undefined) throw new TypeError("this value has no JSON text");
  return text;
}

function write(value: unknown): string | undefined {
  if (value instanceof JsonNumber) return value.text;
  if (typeof value === "bigint") return String(value);
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new TypeError(`${value} has no JSON text`);
    return Object.is(value, -0) ? "-0" : String(value);
  }
  if (value === null || typeof value !== "object") return JSON.stringify(value) as string | undefined;
  if ("toJSON" in value && typeof value.toJSON === "function") return write((value.toJSON as () => unknown)());
  if (Array.isArray(value)) return `[${value.map((item) => write(item) ?? "null").join(",")}]`;
  const members = Object.entries(value).flatMap(([name, item]) => {
    const text = write(item);
    return text === undefined ? [] : [`${JSON.stringify(name)}:${text}`];
  });
  return `{${members.join(",")}}`;
}
