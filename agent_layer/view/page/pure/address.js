// Addresses of the page, `#/name/part?filter=value`, and paths of the API below them.

/** @typedef {{name: string, parts: string[], query: URLSearchParams}} Route */

/** Parse a hash; an unknown or broken one is the list of runs. @param {string} hash @returns {Route} */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = (path ?? "").split("/").filter(Boolean).map(decodePart);
  return { name: parts[0] ?? "runs", parts: parts.slice(1), query: new URLSearchParams(query) };
}

/** @param {string} part */
function decodePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Build a hash; empty and missing values are left out.
 * @param {string[]} parts @param {URLSearchParams | Record<string, unknown>} [query] @returns {string} */
export function hrefOf(parts, query = {}) {
  const entries = query instanceof URLSearchParams ? [...query] : Object.entries(query);
  const kept = entries.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Return a copy of a query with some values changed; null removes.
 * @param {URLSearchParams} query @param {Record<string, string | number | null>} changes */
export function changed(query, changes) {
  const copy = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") copy.delete(name);
    else copy.set(name, String(value));
  }
  return copy;
}

/** Build a path of the API from encoded parts. @param {string[]} parts @param {URLSearchParams | Record<string, string>} [query] */
export function pathOf(parts, query) {
  const text = query ? new URLSearchParams(query).toString() : "";
  return parts.map(encodeURIComponent).join("/") + (text ? `?${text}` : "");
}
