// A list that draws only the visible rows, so that ten thousand are as smooth as ten.

import { html, useEffect, useLayoutEffect, useRef, useState } from './lib.js';

/** Rows drawn above and below those in sight. */
const MARGIN = 8;

/** The list that the keys `j` and `k` move in while the focus is elsewhere. */
let current = null;

/** Moves the focus into the list of the page. Returns whether there is one. */
export function moveInList(key) {
  current?.(key);
  return current !== null;
}

/**
 * `row(item, index)` draws a row's cells; all rows have the same height. The arrow keys, `j` and `k`, Page Up and Down, Home and End move
 * through the rows' links. `attributes(item)` are further ones of a row; `onKey(item, key)` may handle other keys of the focused row.
 */
export function VirtualList({ items, keyOf, row, height, label, head, empty, role = 'table', attributes, onKey }) {
  const box = useRef();
  const [view, setView] = useState({ top: 0, height: 600 });
  // The row to focus once it is drawn; -1 if there is none.
  const wanted = useRef(-1);
  const latest = useRef();

  useLayoutEffect(() => {
    const measure = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    measure();
    return () => observer.disconnect();
  }, []);

  const first = Math.max(0, Math.floor(view.top / height) - MARGIN);
  const last = Math.min(items.length, Math.ceil((view.top + view.height) / height) + MARGIN);

  useEffect(() => {
    if (wanted.current < 0) return;
    // The user has moved the focus elsewhere.
    if (document.activeElement !== box.current) {
      wanted.current = -1;
      return;
    }
    const link = box.current.querySelector(`[aria-rowindex="${wanted.current + 2}"] :is(a, button)`);
    if (link) {
      wanted.current = -1;
      link.focus({ preventScroll: true });
    }
  });

  const go = (index) => {
    const to = Math.max(0, Math.min(items.length - 1, index));
    const { scrollTop, clientHeight } = box.current;
    // The focused row may be gone with the next drawing; until then keys go to the list.
    box.current.focus({ preventScroll: true });
    if (to * height < scrollTop) box.current.scrollTop = to * height;
    if ((to + 1) * height > scrollTop + clientHeight) box.current.scrollTop = (to + 1) * height - clientHeight;
    wanted.current = to;
    setView({ top: box.current.scrollTop, height: clientHeight });
  };
  /** Returns whether the key is one of the list's. */
  const press = (key) => {
    const page = Math.max(1, Math.floor(view.height / height) - 1);
    const focused = box.current.contains(document.activeElement) && document.activeElement.closest('[aria-rowindex]');
    const at = wanted.current >= 0 ? wanted.current : focused ? Number(focused.getAttribute('aria-rowindex')) - 2 : -1;
    const [down, up] = [at + 1, at - 1];
    const steps = { ArrowDown: down, j: down, ArrowUp: up, k: up, PageDown: at + page, PageUp: at - page, Home: 0, End: items.length - 1 };
    if (items.length === 0) return false;
    if (Object.hasOwn(steps, key)) go(steps[key]);
    else return Boolean(items[at] && onKey?.(items[at], key));
    return true;
  };
  latest.current = press;
  useEffect(() => {
    const mine = (key) => latest.current(key);
    current = mine;
    return () => {
      if (current === mine) current = null;
    };
  }, []);
  const pressed = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !press(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  };

  const rows = [];
  for (let index = first; index < last; index += 1) {
    const item = items[index];
    rows.push(html`<div role="row" class="row" key=${keyOf(item)} aria-rowindex=${index + 2} ...${attributes?.(item)}
      style=${{ transform: `translateY(${index * height}px)`, height: `${height}px` }}>${row(item, index)}</div>`);
  }
  return html`<div class="list" role=${role} aria-label=${label} aria-rowcount=${items.length + 1}>
    <div role="rowgroup" class="list-head"><div role="row" class="row" aria-rowindex="1">${head}</div></div>
    <div role="rowgroup" class="list-box" ref=${box} tabindex="0" onKeyDown=${pressed}
      onScroll=${() => setView({ top: box.current.scrollTop, height: box.current.clientHeight })}>
      ${items.length === 0
        ? html`<div role="row" class="row-empty"><span role="cell">${empty}</span></div>`
        : html`<div role="presentation" class="list-space" style=${{ height: `${items.length * height}px` }}>${rows}</div>`}
    </div>
  </div>`;
}
