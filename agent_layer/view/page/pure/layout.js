// Geometry without a DOM: the window of a virtual list, marks of an axis, phases of a lane.

/** Rows that must exist for what is seen, and a few beyond. @param {number} top @param {number} height @param {number} rowHeight @param {number} total
 * @returns {{first: number, end: number}} */
export function windowOf(top, height, rowHeight, total, beyond = 8) {
  const first = Math.max(0, Math.floor(top / rowHeight) - beyond);
  return { first, end: Math.min(total, Math.ceil((top + height) / rowHeight) + beyond) };
}

/** Round marks between two values, about `wanted` of them. @param {number} low @param {number} high @param {number} wanted @returns {number[]} */
export function ticks(low, high, wanted = 6) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  const marks = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) marks.push(Number(at.toPrecision(12)));
  return marks;
}

/** @typedef {{queued_at: number | null, started_at: number | null, run_ended_at: number | null, scored_at: number | null, sealed_at: number | null,
 *   accepted_at: number | null, trained_at: number}} Times */
/** @typedef {{name: "queue" | "run" | "grade" | "seal" | "wait", from: number, to: number}} Phase */

/** Phases of a rollout between the moments that are known. An unknown moment joins its phase to the next one, and the run
 * gives both its name, for it is the longest; but a wait stays one. @param {Times} times @returns {Phase[]} */
export function phasesOf(times) {
  /** @type {[Phase["name"], number | null][]} */
  const ends = [["queue", times.started_at], ["run", times.run_ended_at], ["grade", times.scored_at], ["seal", times.sealed_at ?? times.accepted_at], ["wait", times.trained_at]];
  /** @type {Phase[]} */
  const phases = [];
  let from = times.queued_at;
  let hasRun = false;
  for (const [name, to] of ends) {
    hasRun ||= name === "run";
    if (to === null) continue;
    if (from !== null && to >= from) phases.push({ name: hasRun && name !== "wait" ? "run" : name, from, to });
    from = from === null ? to : Math.max(from, to);
    hasRun = false;
  }
  return phases;
}

/** Put intervals into as few rows as possible, without overlap; returns the row of each.
 * @param {{from: number, to: number}[]} spans @returns {number[]} */
export function packedRows(spans) {
  const order = spans.map((_, at) => at).sort((a, b) => (spans[a]?.from ?? 0) - (spans[b]?.from ?? 0));
  /** @type {number[]} */ const ends = [];
  const rows = new Array(spans.length).fill(0);
  for (const at of order) {
    const span = /** @type {{from: number, to: number}} */ (spans[at]);
    let row = ends.findIndex((end) => end <= span.from);
    if (row < 0) row = ends.push(0) - 1;
    ends[row] = span.to;
    rows[at] = row;
  }
  return rows;
}

/** The nearest numbers below and above one. @param {number[]} all ascending @param {number} at @returns {[number | undefined, number | undefined]} */
export const besideOf = (all, at) => [all.findLast((one) => one < at), all.find((one) => one > at)];
