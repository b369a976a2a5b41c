// Client of /api/v1: JSON by GET, errors as one sentence, and a hook that keeps an answer fresh.
import { useEffect, useLayoutEffect, useRef, useState } from "./ui.js";
import { isTouched } from "../pure/touched.js";
import { restAfter, ROUND_MS } from "../pure/rhythm.js";
import { onChange } from "./live.js";
import { send } from "./transport.js";
export { pathOf } from "../pure/address.js";

/** An answer of the API that is not a success. */
export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Fetch one resource. @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = (path, signal) => answerOf(path, signal ? { signal } : {});

/** Order something. @param {string} path @param {object} body @param {Record<string, string>} headers @returns {Promise<any>} */
export const ask = (path, body, headers) =>
  answerOf(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } });

/** Order a file. @param {string} path @param {object} body @param {Record<string, string>} headers @returns {Promise<Blob>} */
export const askFile = (path, body, headers) =>
  responseOf(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } }).then((response) => response.blob());

/** @param {string} path @param {RequestInit} options @returns {Promise<any>} */
async function answerOf(path, options) {
  const body = await (await responseOf(path, options)).json().catch(() => null);
  if (body === null) throw new ApiError(500, "internal", "The server answered with something that is not JSON.");
  return body;
}

/** @param {string} path @param {RequestInit} options @returns {Promise<Response>} */
async function responseOf(path, options) {
  let response;
  try {
    response = await send(path, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The server does not answer. Is 'agent-layer view' still running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const told = body?.error ?? { code: "internal", message: `The server answered ${response.status} without a reason.` };
  throw new ApiError(response.status, told.code, told.message);
}

/** Fetch a path, and again after a change that touches it; the last answer stays while the next one is on its way.
 * A change that comes in the meantime waits for it: a slow answer is never given up for the next question.
 * While changes go on, questions become rarer; "everything may have changed" is asked about at once.
 * @template T @param {string | null} path null: nothing to fetch
 * @param {(path: string, change: import("./live.js").Change | null) => boolean} isChangedBy whether what the view shows of the answer changes with it
 * @returns {{data: T | null, error: Error | null, isLoading: boolean}} */
export function useResource(path, isChangedBy = isTouched) {
  const [state, setState] = useState(/** @type {{path: string | null, data: any, error: any}} */ ({ path: null, data: null, error: null }));
  const [round, setRound] = useState(0);
  const asked = useRef({ path, at: 0, restMs: ROUND_MS, isAsking: false, isStale: false, isUrgent: false, timer: 0 });
  const isChanged = useRef(isChangedBy);
  isChanged.current = isChangedBy;
  const askAgain = (/** @type {boolean} */ isUrgent) => {
    const now = asked.current;
    if (now.isAsking) {
      now.isStale = true;
      now.isUrgent ||= isUrgent;
      return;
    }
    if (isUrgent) clearTimeout(now.timer);
    if (isUrgent || !now.timer) now.timer = window.setTimeout(() => setRound((value) => value + 1), Math.max(0, now.at + (isUrgent ? ROUND_MS : now.restMs) - Date.now()));
  };
  useEffect(() => onChange((changes) => {
    if (path !== null && changes.some((change) => isChanged.current(path, change))) askAgain(changes.includes(null));
  }), [path]);
  useLayoutEffect(() => { // asked before the frame is painted, not after: an answer that came early is in the first frame
    if (path === null) return undefined;
    const abort = new AbortController();
    const before = asked.current;
    const now = { path, at: Date.now(), restMs: ROUND_MS, isAsking: true, isStale: false, isUrgent: false, timer: 0 };
    clearTimeout(before.timer);
    asked.current = now;
    const take = (/** @type {(old: any) => any} */ next) => {
      if (abort.signal.aborted) return;
      now.isAsking = false;
      now.restMs = restAfter(before.restMs, before.path === path ? now.at - before.at : Infinity, Date.now() - now.at);
      setState(next);
      if (now.isStale) askAgain(now.isUrgent);
    };
    get(path, abort.signal).then(
      (data) => take(() => ({ path, data, error: null })),
      (error) => take((old) => ({ path, data: old.path === path ? old.data : null, error })),
    );
    return () => {
      clearTimeout(now.timer);
      abort.abort();
    };
  }, [path, round]);
  const isMine = state.path === path;
  return { data: isMine ? state.data : null, error: isMine ? state.error : null, isLoading: path !== null && !isMine };
}
