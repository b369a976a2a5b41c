// Live by server-sent events: one stream per visible page, and listeners that are called once a second at most.
import { ROUND_MS } from "../pure/rhythm.js";
import { addressOf, forgetEarly } from "./transport.js";

/** @typedef {import("./types.js").Change} Change */

const KINDS = ["run", "trajectory", "step", "group", "update", "fleet"];
/** How often to ask, and how often to try again, where the server has no stream of events. */
export const POLL_MS = 4000;
const RETRY_MS = 20000;
/** @type {Set<(changes: (Change | null)[]) => void>} */
const listeners = new Set();
/** How the page learns of changes: told as they happen; by asking, without a stream; not at all, until the stream is back,
 * or because it is a copy. @typedef {"live" | "asking" | "cut" | "copy"} Liveness */
/** @type {Set<(how: Liveness) => void>} */
const watchers = new Set();
/** @type {EventSource | null} */
let source = null;
/** @type {(Change | null)[]} */
let gathered = [];
let place = "";
let timer = 0;
let poll = 0;
let retry = 0;
let told = 0;

/** Call `listener` with what changed in the store, `null` for everything; returns how to stop.
 * @param {(changes: (Change | null)[]) => void} listener @returns {() => void} */
export function onChange(listener) {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Call `watcher` when the stream opens or breaks. @param {(how: Liveness) => void} watcher @returns {() => void} */
export function onLive(watcher) {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
}

/** Follow the events while the page is visible: a browser has six connections to one server, and hidden pages need none. */
export function follow() {
  addEventListener("pagehide", close);
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  if (!document.hidden) open();
}

/** Ask again for what is shown, after a change of the reader's own. */
export const refresh = () => gather(null);

function open() {
  close();
  source = new EventSource(addressOf(place ? `events?after=${encodeURIComponent(place)}` : "events"));
  source.onopen = () => {
    stopPolling();
    watchers.forEach((watcher) => watcher("live"));
  };
  source.onerror = () => {
    const isOver = source?.readyState === EventSource.CLOSED;
    if (isOver) startPolling();
    watchers.forEach((watcher) => watcher(isOver ? "asking" : "cut"));
  };
  for (const kind of KINDS) source.addEventListener(kind, (event) => hear(event, JSON.parse(event.data)));
  source.addEventListener("reload", (event) => hear(event, null));
  source.addEventListener("ready", (event) => { // what was read before it may have changed since
    forgetEarly();
    hear(event, null);
  });
}

function close() {
  source?.close();
  source = null;
  stopPolling();
}

function startPolling() {
  poll ||= window.setInterval(() => document.hidden || gather(null), POLL_MS);
  retry ||= window.setTimeout(open, RETRY_MS);
}

function stopPolling() {
  clearInterval(poll);
  clearTimeout(retry);
  poll = retry = 0;
}

/** @param {MessageEvent} event @param {Change | null} change */
function hear(event, change) {
  place = event.lastEventId;
  gather(change);
}

/** @param {Change | null} change */
function gather(change) {
  gathered.push(change);
  timer ||= window.setTimeout(tell, Math.max(50, told + ROUND_MS - Date.now()));
}

function tell() {
  const changes = gathered;
  [gathered, timer, told] = [[], 0, Date.now()];
  listeners.forEach((listener) => listener(changes));
}
