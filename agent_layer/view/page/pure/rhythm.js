// When a question that changes keep touching is asked again. Pure: durations in, a duration out.

/** Least milliseconds between two questions. */
export const ROUND_MS = 1000;
/** Milliseconds between two questions while changes go on. */
const STEADY_MS = 4000;
/** A question rests this many times as long as its answer took: a large store is not asked all the time. */
const REST = 20;
const LONGEST_MS = 30_000;

/** Milliseconds from a question to the next one: twice as long as before while changes go on, and one round after a pause.
 * @param {number} restMs between the last two questions at least @param {number} sinceMs between them in fact @param {number} tookMs until the answer
 * @returns {number} */
export function restAfter(restMs, sinceMs, tookMs) {
  const rest = sinceMs < 2 * restMs ? Math.min(2 * restMs, STEADY_MS) : ROUND_MS;
  return Math.max(rest, Math.min(REST * tookMs, LONGEST_MS));
}
