// A menu of rare actions behind one button, as the ARIA practices describe a menu button.

import { html, useEffect, useLayoutEffect, useRef, useState } from './lib.js';
import { Icon } from './parts.js';

/** `items` are `{label, onChoose, kind?, href?}`; `null` draws a line. */
export function Menu({ label, items, icon = 'more', text, kind = '' }) {
  const [open, setOpen] = useState(false);
  const box = useRef();
  const button = useRef();
  const entries = () => [...box.current.querySelectorAll('[role=menuitem]')];

  useLayoutEffect(() => {
    if (open) entries()[0]?.focus();
  }, [open]);
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => box.current.contains(event.target) || setOpen(false);
    addEventListener('pointerdown', outside);
    return () => removeEventListener('pointerdown', outside);
  }, [open]);

  const close = () => {
    setOpen(false);
    button.current.focus();
  };
  const pressed = (event) => {
    if (!open) {
      if (event.key !== 'ArrowDown') return;
      event.preventDefault();
      setOpen(true);
      return;
    }
    const all = entries();
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: (at + 1) % all.length, ArrowUp: (at - 1 + all.length) % all.length, Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined) all[to].focus();
    else if (event.key === 'Escape') close();
    else if (event.key === 'Tab') setOpen(false);
    if (to === undefined && event.key !== 'Escape') return;
    event.preventDefault();
    event.stopPropagation();
  };
  const choose = (item) => () => {
    // Before it is chosen: a dialog returns the focus to where it was.
    close();
    item.onChoose?.();
  };

  return html`<div class="menu" ref=${box} onKeyDown=${pressed}>
    <button type="button" ref=${button} class=${kind} aria-haspopup="menu" aria-expanded=${open} aria-label=${label} title=${text ? undefined : label}
      onClick=${() => setOpen(!open)}>${text ?? html`<${Icon} name=${icon} />`}</button>
    ${open &&
    html`<div role="menu" aria-label=${label} class="menu-items">${items.filter((item) => item !== false).map((item, n) =>
      item === null
        ? html`<div role="separator" key=${n}></div>`
        : item.href
          ? html`<a role="menuitem" tabindex="-1" key=${item.label} href=${item.href} onClick=${() => setOpen(false)}>${item.label}</a>`
          : html`<button type="button" role="menuitem" tabindex="-1" key=${item.label} class=${item.kind ?? ''} onClick=${choose(item)}>${item.label}</button>`,
    )}</div>`}
  </div>`;
}
