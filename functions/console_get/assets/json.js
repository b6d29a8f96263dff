// JSON whose numbers keep their text. `JSON.parse` rounds integers beyond 2^53 and long decimals: a form that reads, changes
// and writes a config would store other numbers than it has read.

/** A number that is not the same as the browser's number of the same text. In calculations it is that nearest number. */
export class Exact {
  constructor(text) {
    this.text = text;
    Object.freeze(this);
  }
  valueOf() {
    return Number(this.text);
  }
  toString() {
    return this.text;
  }
  /** `JSON.stringify` would write something else. */
  toJSON() {
    throw new TypeError('numbers are written by stringify() of json.js');
  }
}

/** Whether a text may have a number that `JSON.parse` changes: many digits, a point, an exponent, or a minus before a zero. */
const SUSPICIOUS = /(?:^|[:[,])\s*(?:-?\d{16}|-?\d+[.eE]|-0)/;

const number = (text) => (String(Number(text)) === text ? Number(text) : new Exact(text));

/** The value of a JSON text, as `JSON.parse` returns it, with an `Exact` for each number that it would change. */
export function parse(text) {
  // Reports what is wrong with the text; what follows relies on a right one.
  const plain = JSON.parse(text);
  return SUSPICIOUS.test(text) ? exact(text) : plain;
}

function exact(text) {
  const token = /\s*("[^"\\]*(?:\\.[^"\\]*)*"|[-+.\w]+|[^\s])/gy;
  const next = () => token.exec(text)[1];
  const value = (first) => {
    if (first === '[') {
      const all = [];
      for (let at = next(); at !== ']'; at = next()) if (at !== ',') all.push(value(at));
      return all;
    }
    if (first === '{') {
      const all = [];
      for (let at = next(); at !== '}'; at = next()) {
        if (at === ',') continue;
        next();
        all.push([JSON.parse(at), value(next())]);
      }
      // Defines members, whatever their names: an assignment to `__proto__` would not.
      return Object.fromEntries(all);
    }
    return /^[-\d]/.test(first) ? number(first) : JSON.parse(first);
  };
  return value(next());
}

/** The text of a value, as `JSON.stringify` writes it, with the text of each `Exact`. */
export function stringify(value, indent = 0) {
  const step = ' '.repeat(indent);
  const write = (value, margin) => {
    if (value instanceof Exact) return value.text;
    if (value === null || typeof value !== 'object') return JSON.stringify(value);
    const inner = margin + step;
    const items = Array.isArray(value)
      ? value.map((item) => write(item, inner) ?? 'null')
      : Object.entries(value).flatMap(([name, item]) => {
          const text = write(item, inner);
          return text === undefined ? [] : [`${JSON.stringify(name)}:${indent ? ' ' : ''}${text}`];
        });
    const [open, close] = Array.isArray(value) ? '[]' : '{}';
    if (items.length === 0) return open + close;
    return indent ? `${open}\n${inner}${items.join(`,\n${inner}`)}\n${margin}${close}` : open + items.join(',') + close;
  };
  return write(value, '');
}
