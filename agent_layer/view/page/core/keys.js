// Keyboard: the view that is shown says what its keys do; the help lists them.
import { useLayoutEffect, useRef } from "./ui.js";

/** @typedef {Record<string, () => void>} Keys */
/** @type {Set<{current: Keys}>} */
const layers = new Set();

/** Where a view does not walk by itself, j and k move the focus from row to row. @type {Keys} */
const everywhere = { j: () => walkRows(1), k: () => walkRows(-1) };

/** Focus the first link of the next row that has one. @param {number} by */
function walkRows(by) {
  const rows = [...document.querySelectorAll("main :is(tbody tr, a.run-card, .sibling, svg.timeline a)")]
    .map((row) => ({ row, link: /** @type {HTMLElement | null} */ (row.matches("a") ? row : row.querySelector("a")) }))
    .filter(({ link }) => link?.checkVisibility());
  const at = rows.findIndex(({ row }) => row.contains(document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  rows[next]?.link?.focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = /** @type {HTMLElement} */ (event.target);
  if (target.closest?.("input, textarea, select, dialog[open], [data-own-keys]")) return;
  if (event.key === "Enter" && target.closest?.("a, button, summary")) return; // what has the focus is what Enter opens
  for (const keys of [...[...layers].reverse().map((layer) => layer.current), everywhere]) {
    const action = keys[event.key];
    if (action) {
      event.preventDefault();
      action();
      return;
    }
  }
});

/** Bind keys while the component is mounted; later layers win. @param {Keys} keys */
export function useKeys(keys) {
  const layer = useRef(keys);
  layer.current = keys;
  useLayoutEffect(() => { // bound when the view is in sight, not after it is painted
    layers.add(layer);
    return () => void layers.delete(layer);
  }, []);
}
