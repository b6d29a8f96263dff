// The natural order of texts: `orders-2` before `orders-10`.

const isDigit = (code) => code >= 48 && code <= 57;

/** Compares digit by digit where both have digits, and by code unit elsewhere. A total order: texts that are equal but for zeros differ. */
export function natural(a, b) {
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    const [x, y] = [a.charCodeAt(i), b.charCodeAt(j)];
    if (isDigit(x) && isDigit(y)) {
      const [startA, startB] = [skipZeros(a, i), skipZeros(b, j)];
      const [endA, endB] = [endOfDigits(a, startA), endOfDigits(b, startB)];
      const longer = endA - startA - (endB - startB);
      if (longer !== 0) return longer;
      for (let k = 0; k < endA - startA; k += 1) {
        const difference = a.charCodeAt(startA + k) - b.charCodeAt(startB + k);
        if (difference !== 0) return difference;
      }
      [i, j] = [endA, endB];
    } else if (x !== y) {
      return x - y;
    } else {
      i += 1;
      j += 1;
    }
  }
  return a.length - i - (b.length - j) || (a < b ? -1 : a > b ? 1 : 0);
}

function skipZeros(text, from) {
  let at = from;
  while (text.charCodeAt(at) === 48) at += 1;
  return at;
}

function endOfDigits(text, from) {
  let at = from;
  while (at < text.length && isDigit(text.charCodeAt(at))) at += 1;
  return at;
}

/** The index of a text in a list in natural order, or where it would be. */
export function placeIn(order, text) {
  let [low, high] = [0, order.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (natural(order[middle], text) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
