// Two runs in one picture: their curves over all steps or versions that either has.

/** @typedef {(number | null)[]} Column */

/** Put the curves of two runs on one axis; each has gaps where only the other has a point.
 * @param {number[]} x @param {Column[]} curves @param {number[]} otherX @param {Column[]} others
 * @returns {{x: number[], curves: Column[], others: Column[]}} */
export function overlaid(x, curves, otherX, others) {
  const both = [...new Set([...x, ...otherX])].sort((a, b) => a - b);
  const [at, otherAt] = [placesOf(x), placesOf(otherX)];
  /** @param {Map<number, number>} places @param {Column} curve */
  const spread = (places, curve) => both.map((one) => curve[places.get(one) ?? -1] ?? null);
  return { x: both, curves: curves.map((one) => spread(at, one)), others: others.map((one) => spread(otherAt, one)) };
}

/** @param {number[]} x */
const placesOf = (x) => new Map(x.map((one, at) => [one, at]));
