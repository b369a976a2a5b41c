// In place of core/live.js in a page that was exported: nothing there ever changes.

/** @typedef {import("../core/types.js").Change} Change */

/** @param {(changes: (Change | null)[]) => void} _listener @returns {() => void} */
export const onChange = (_listener) => () => {};

export const POLL_MS = Infinity;

/** @param {(how: "copy") => void} watcher @returns {() => void} */
export function onLive(watcher) {
  watcher("copy");
  return () => {};
}

export const follow = () => {};

export const refresh = () => {};
