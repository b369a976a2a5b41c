// Orders to the server: who may give them, whose name they carry, and the request itself.
import { useEffect, useState } from "./ui.js";
import { ask, askFile, get, pathOf } from "./api.js";
import { refresh } from "./live.js";

/** @typedef {{takes_writes: boolean, may_write: boolean, is_archive: boolean, cooled_runs: string[]}} Rights */

const NAME = "agent-layer.name";
/** @type {Rights} */
let rights = { takes_writes: false, may_write: false, is_archive: false, cooled_runs: [] };
/** @type {Set<(now: Rights) => void>} */
const watchers = new Set();
let isAsked = false;

/** What the reader may do; nothing until the server has told. @returns {Rights} */
export function useRights() {
  const [now, setNow] = useState(rights);
  useEffect(() => {
    watchers.add(setNow);
    setNow(rights);
    if (!isAsked) void learnRights();
    return () => void watchers.delete(setNow);
  }, []);
  return now;
}

async function learnRights() {
  isAsked = true;
  try {
    rights = await get("info");
  } catch {
    isAsked = false;
  }
  watchers.forEach((watcher) => watcher(rights));
}

/** The name that orders carry, as it was given last. @returns {string} */
export const writerName = () => localStorage.getItem(NAME) ?? "";

/** Give an order, and show what it changed. @param {string[]} parts @param {object} body @param {string} by @returns {Promise<any>} */
export async function order(parts, body, by) {
  localStorage.setItem(NAME, by);
  const done = await ask(pathOf(parts), body, { "Agent-Layer-By": encodeURIComponent(by) });
  refresh();
  return done;
}

/** Download what an order answers. @param {string[]} parts @param {object} body @param {string} by @param {string} name of the file */
export async function download(parts, body, by, name) {
  localStorage.setItem(NAME, by);
  const address = URL.createObjectURL(await askFile(pathOf(parts), body, { "Agent-Layer-By": encodeURIComponent(by) }));
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** Become operator by the key. @param {string} key @param {string} by */
export async function unlock(key, by) {
  localStorage.setItem(NAME, by);
  await ask("session", {}, { "Agent-Layer-By": encodeURIComponent(by), Authorization: `Bearer ${key}` });
  await learnRights();
  refresh();
}
