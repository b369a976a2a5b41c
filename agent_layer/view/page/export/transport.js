// In place of core/transport.js in a page that was exported: answers come from scripts of data beside the page.
import { facetsOf, histogramOf, selected } from "../pure/selection.js";
import { slicedTokens } from "../pure/tokens.js";

/** @typedef {{command: string, python: string, at: number, tokens: number, rows: import("../core/types.js").Row[], files: Record<string, string>}} Site */

/** Texts by the path that they answer, of the files that are being loaded. @type {Map<string, (texts: Map<string, string>) => void>} */
const awaited = new Map();
/** @type {Map<string, Promise<Map<string, string>>>} */
const loading = new Map();
/** @type {Promise<Site> | null} */
let site = null;
/** @type {Record<string, string>} */
let files = {};

/** @type {any} */ (globalThis).agentLayerHold = (/** @type {string} */ name, /** @type {string[]} */ pairs) => {
  /** @type {Map<string, string>} */ const texts = new Map();
  for (let at = 0; at + 1 < pairs.length; at += 2) texts.set(pairs[at] ?? "", pairs[at + 1] ?? "");
  awaited.get(name)?.(texts);
};

/** Answer as the server would, from what was exported. @param {string} path @param {RequestInit} options @returns {Promise<Response>} */
export async function send(path, options) {
  if (options.method) return refusal(405, "This is an export: it changes nothing. Use 'agent-layer view --allow-writes'.");
  site ??= load("site").then((texts) => JSON.parse(texts.get("site") ?? "null"));
  files = (await site).files;
  const [name = "", query = ""] = path.split(/\?(.*)/s);
  return answerOf(await site, name, new URLSearchParams(query));
}

/** File of an image; none where it was not exported. @param {string} path @returns {string} */
export const addressOf = (path) => (Object.hasOwn(files, path) ? files[path] ?? "" : "");

/** @param {Site} whole @param {string} path @param {URLSearchParams} query @returns {Promise<Response>} */
async function answerOf(whole, path, query) {
  if (["query", "facets", "histogram"].includes(path)) {
    const rows = selected(whole.rows, query);
    if (typeof rows === "string") return refusal(400, rows);
    if (path === "facets") return answer({ count: rows.length, facets: facetsOf(rows) });
    return answer(path === "query" ? { items: rows, cursor: null, command: whole.command, python: whole.python } : histogramOf(rows, Number(query.get("bins")) || undefined));
  }
  if (path.endsWith("/tokens")) {
    const from = Number(query.get("from"));
    const text = await textOf(whole, `${path}/${Math.floor(from / whole.tokens)}`);
    return text === null ? absent(path) : answer(slicedTokens(JSON.parse(text), from, Number(query.get("to"))));
  }
  const text = await textOf(whole, path);
  return text === null ? absent(path) : new Response(text);
}

/** @param {Site} whole @param {string} path @returns {Promise<string | null>} */
async function textOf(whole, path) {
  const file = Object.hasOwn(whole.files, path) ? whole.files[path] : undefined;
  return file === undefined ? null : (await load(file)).get(path) ?? null;
}

/** Load a script of data, once at a time. @param {string} name @returns {Promise<Map<string, string>>} */
function load(name) {
  const known = loading.get(name);
  if (known) return known;
  const script = document.createElement("script");
  const texts = /** @type {Promise<Map<string, string>>} */ (new Promise((resolve, reject) => {
    awaited.set(name, resolve);
    script.addEventListener("error", () => reject(new Error(`data/${name}.js cannot be read`)));
    script.addEventListener("load", () => reject(new Error(`data/${name}.js is not a file of this export`))); // nothing, where it was handed over
  })).finally(() => {
    loading.delete(name);
    awaited.delete(name);
    script.remove();
  });
  loading.set(name, texts);
  script.src = `data/${name}.js`;
  document.head.append(script);
  return texts;
}

/** @param {string} path */
function absent(path) {
  const isContent = /^(trajectories|groups)\//.test(path) || /\/updates\//.test(path);
  return refusal(404, isContent ? "This is not in the export, which holds the trajectories of one query." : "This needs the store, and is not in an export. 'agent-layer view' shows it.");
}

/** @param {unknown} body */
const answer = (body) => new Response(JSON.stringify(body));

/** @param {number} status @param {string} message */
const refusal = (status, message) => new Response(JSON.stringify({ error: { code: "export", message } }), { status });
