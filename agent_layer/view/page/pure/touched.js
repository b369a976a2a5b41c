// Which answers of the API a change touches. Pure: addresses in, yes or no out.

/** What changed in a moment; `null` stands for everything. @typedef {import("../core/types.js").Change} Change */

const OF_FLEET = new Set(["workers", "queue", "engines", "dead", "sandboxes"]);
const OF_ONE = new Set(["trajectories", "groups", "diff"]);
/** Of a run: what its updates say, which no step of a rollout that goes on changes. */
const OF_UPDATES = new Set(["updates", "progress"]);

/** Whether a path below `/api/v1` answers otherwise after a change. In doubt, yes.
 * @param {string} path @param {Change | null} change @returns {boolean} */
export function isTouched(path, change) {
  if (change === null) return true;
  const [place = "", query = ""] = path.split("?");
  const [kind = "", name = "", part = "", ...rest] = place.split("/").map(decodeURIComponent);
  if (kind === "writes") return change.kind === "fleet" || change.kind === "trajectory"; // orders, and judgements
  if (OF_FLEET.has(kind)) return change.kind === "fleet";
  if (change.kind === "fleet" || kind === "info" || kind === "health") return false;
  if (change.kind === "step" && kind === "runs" && OF_UPDATES.has(part) && !rest.length) return false;
  const asked = new URLSearchParams(query);
  if (OF_ONE.has(kind)) return isOneTouched(kind, kind === "diff" ? [asked.get("a"), asked.get("b")] : [name], change);
  const run = kind === "runs" ? name : asked.get("run");
  return !run || change.runs.includes(run);
}

/** @param {string} kind @param {(string | null)[]} ids @param {Change} change */
function isOneTouched(kind, ids, change) {
  if (change.kind === "update") return true; // its members are not named
  if (change.kind === "run" || (change.kind === "group" && kind !== "groups")) return false;
  if (change.kind !== "group" && kind === "groups") return true; // nor are those of a group
  return change.num > change.ids.length || ids.some((id) => id !== null && change.ids.includes(id));
}
