// What a view asks first. The same functions build the paths for the view, and for early.js, which asks before the view is here.
import { pathOf } from "./address.js";

const OWN = ["columns", "text"];
const ROWS = 64;
/** Tokens of the first answer: more than a screen shows, and few, so that it comes soon. */
const FIRST_TOKENS = 4096;
const MOST_TOKENS = 16384;

/** The part of an address that the API understands. @param {URLSearchParams} query */
export function filtersOf(query) {
  const kept = new URLSearchParams(query);
  for (const name of OWN) kept.delete(name);
  return kept;
}

/** Path of the first rows that match. @param {string} filters */
export const rowsPath = (filters) => pathOf(["query"], new URLSearchParams(`${filters}&limit=${ROWS}`));

/** Path of tokens of a trajectory; the first answer is a short one. @param {string} id @param {number} from */
export const tokensPath = (id, from) => pathOf(["trajectories", id, "tokens"], { from: String(from), to: String(from ? from + MOST_TOKENS : FIRST_TOKENS) });

/** Paths that the view of an address waits for before it shows anything.
 * @param {import("./address.js").Route} route @returns {string[]} */
export function firstPaths({ name, parts, query }) {
  const [id = ""] = parts;
  if (name === "runs") return ["runs"];
  if (name === "run") return [pathOf(["runs", id])];
  if (name === "group") return [pathOf(["groups", id])];
  if (name === "trajectories") return query.get("text") ? [] : [rowsPath(filtersOf(query).toString())];
  if (name === "trajectory") return [pathOf(["trajectories", id]), ...(query.get("tab") === "tokens" ? [tokensPath(id, 0)] : [])];
  return [];
}
