// The vendored library under one name, and the hooks that several pages use.

import { Fragment, h, render } from './vendor/preact.js';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from './vendor/hooks.js';
import htm from './vendor/htm.js';

export { Fragment, render, useEffect, useLayoutEffect, useMemo, useRef, useState };

/** Markup. What is put into it is text or an attribute's value, never markup. */
export const html = htm.bind(h);

const clocks = new Map();

/** The time in milliseconds, again every `every` milliseconds. All users of an interval share its timer. */
export function useNow(every = 1000) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const clock = clocks.get(every) ?? { users: new Set(), timer: null };
    clocks.set(every, clock);
    clock.users.add(setNow);
    clock.timer ??= setInterval(() => {
      const time = Date.now();
      for (const user of [...clock.users]) user(time);
    }, every);
    return () => {
      clock.users.delete(setNow);
      if (clock.users.size > 0) return;
      clearInterval(clock.timer);
      clocks.delete(every);
    };
  }, [every]);
  return now;
}

/** Whether the window is too narrow for columns. */
export function useNarrow() {
  const query = useMemo(() => matchMedia('(max-width: 44rem)'), []);
  const [narrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const changed = () => setNarrow(query.matches);
    query.addEventListener('change', changed);
    return () => query.removeEventListener('change', changed);
  }, [query]);
  return narrow;
}
