// Points of a run as curves over policy versions, and how long each of its parts waits.

/** @typedef {{key: string, version: number | null, count: number, success_rate: number | null, mean_reward: number | null}} Point */

/** Curves of the most frequent keys, over all versions. @param {Point[]} points @param {"success_rate" | "mean_reward"} name @param {number} most
 * @returns {{x: number[], curves: {key: string, values: (number | null)[]}[]}} */
export function curvesOf(points, name, most) {
  const known = points.filter((one) => one.version !== null && one[name] !== null);
  const x = [...new Set(known.map((one) => /** @type {number} */ (one.version)))].sort((a, b) => a - b);
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const one of known) counts.set(one.key, (counts.get(one.key) ?? 0) + one.count);
  const keys = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, most).map(([key]) => key);
  const values = new Map(known.map((one) => [`${one.version} ${one.key}`, one[name]]));
  return { x, curves: keys.map((key) => ({ key, values: x.map((version) => values.get(`${version} ${key}`) ?? null) })) };
}

/** Share of the time of each step that a part of it takes; null where the step's time is not known.
 * @param {Record<string, (number | null)[] | undefined>} numbers @param {string[]} names @returns {(number | null)[][]} */
export function sharesOf(numbers, names) {
  const size = Math.max(0, ...names.map((name) => numbers[name]?.length ?? 0));
  const totals = Array.from({ length: size }, (_, at) => names.reduce((all, name) => all + (numbers[name]?.[at] ?? 0), 0));
  return names.map((name) => totals.map((total, at) => (total > 0 ? (numbers[name]?.[at] ?? 0) / total : null)));
}
