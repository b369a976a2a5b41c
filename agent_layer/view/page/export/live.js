// In place of core/live.js in a page that was exported: nothing there ever changes.

/** @typedef {import("../core/types.js").Change} Change */

/** @param {(changes: (Change | null)[]) => void} _listener @returns {() => void} */
export const onChange = (_listener) => () => {};

/** @param {(isLive: boolean) => void} _watcher @returns {() => void} */
export const onLive = (_watcher) => () => {};

export const follow = () => {};

export const refresh = () => {};
