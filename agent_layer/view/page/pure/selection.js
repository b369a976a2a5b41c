// Filters, counts and a histogram over rows that are all here, with the names and rules of the API.

/** @typedef {import("../core/types.js").Row} Row */
/** @typedef {{low: number, high: number, count: number, filters: Record<string, string>}} Bin */

/** Fields whose filter has another name. @type {Record<string, string>} */
const FIELDS = { task: "task_id", agent: "agents", tool: "tools", finding: "findings", engine: "engines" };
const FACETS = ["run", "split", "task_type", "status", "cause", "agent", "tool", "finding", "engine"];
const ORDERS = /** @type {Record<string, (row: Row) => number>} */ ({
  newest: (row) => -startOf(row), oldest: startOf, reward: (row) => -(row.reward ?? -Infinity), policy: (row) => -(row.policy_max ?? -Infinity),
});
const MOST_BINS = 20;

/** Rows that match all filters, in the order that is asked for; or, as a text, why a filter cannot be answered.
 * @param {Row[]} rows @param {URLSearchParams} query @returns {Row[] | string} */
export function selected(rows, query) {
  let found = rows;
  for (const [name, value] of query) {
    if (value === "" || ["order", "limit", "bins", "fields"].includes(name)) continue;
    const test = testOf(name, value, rows);
    if (test === null) return `The filter ${name}=${value} needs the store: an export cannot answer it. Remove it above.`;
    found = found.filter(test);
  }
  if (query.get("order") === "reward") found = found.filter((row) => row.reward !== null);
  if (query.get("order") === "policy") found = found.filter((row) => row.policy_max !== null);
  const key = ORDERS[query.get("order") ?? "newest"] ?? startOf;
  return found.map((row, at) => ({ row, at })).sort((a, b) => key(a.row) - key(b.row) || startOf(b.row) - startOf(a.row) || a.at - b.at).map(({ row }) => row);
}

/** @param {string} name @param {string} value @param {Row[]} rows @returns {((row: Row) => boolean) | null} */
function testOf(name, value, rows) {
  if (name === "accepted") return (row) => value !== "1" || row.accepted;
  if (name === "label") {
    const [label = "", wanted = ""] = value.split(/=(.*)/s);
    return (row) => Object.hasOwn(row.labels, label) && row.labels[label] === wanted;
  }
  if (name === "reward" || name === "policy") {
    const range = rangeOf(value);
    if (!range) return null;
    return name === "reward" ? (row) => isWithin(row.reward, row.reward, range) : (row) => isWithin(row.policy_min, row.policy_max, range);
  }
  const field = Object.hasOwn(FIELDS, name) ? FIELDS[name] ?? name : name;
  if (!rows.some((row) => Object.hasOwn(row, field))) return null;
  return (row) => [valueOf(row, field)].flat().some((one) => String(one) === value);
}

/** @param {string} text @returns {[number, number] | null} */
function rangeOf(text) {
  const [low = "", high = low] = text.split("..");
  const range = /** @type {[number, number]} */ ([low === "" ? -Infinity : Number(low), high === "" ? Infinity : Number(high)]);
  return range.some(Number.isNaN) ? null : range;
}

/** @param {number | null} low @param {number | null} high @param {[number, number]} range */
const isWithin = (low, high, range) => low !== null && high !== null && low <= range[1] && high >= range[0];

/** @param {Row} row @param {string} field @returns {any} */
const valueOf = (row, field) => /** @type {any} */ (row)[field];

/** @param {Row} row */
function startOf(row) {
  return row.started_at === null ? 0 : Date.parse(row.started_at);
}

/** Counts by the values of fields, the most frequent first.
 * @param {Row[]} rows @returns {Record<string, {value: string, count: number}[]>} */
export function facetsOf(rows) {
  return Object.fromEntries(FACETS.map((name) => {
    /** @type {Map<string, number>} */ const counts = new Map();
    for (const row of rows) for (const value of [valueOf(row, FIELDS[name] ?? name)].flat()) if (value !== null) counts.set(value, (counts.get(value) ?? 0) + 1);
    return [name, [...counts].map(([value, count]) => ({ value, count })).sort((a, b) => b.count - a.count || (a.value < b.value ? -1 : 1))];
  }));
}

/** Bins between the lowest and the highest reward; each filter names rewards that are there, so that both ends count.
 * @param {Row[]} rows @param {number} [most] @returns {{bins: Bin[], num_rewarded: number, num_without: number}} */
export function histogramOf(rows, most = MOST_BINS) {
  const rewards = rows.flatMap((row) => (row.reward === null ? [] : [row.reward])).sort((a, b) => a - b);
  const [lowest = 0, highest = 0] = [rewards[0], rewards.at(-1)];
  const width = (highest - lowest) / most || 1;
  const bins = Array.from({ length: highest > lowest ? most : Math.min(1, rewards.length) }, (_, at) => {
    const inside = rewards.filter((one) => Math.min(most - 1, Math.floor((one - lowest) / width)) === at);
    const [low, high] = [lowest + at * width, lowest + (at + 1) * width];
    return { low, high, count: inside.length, filters: { reward: `${inside[0] ?? low}..${inside.at(-1) ?? high}` } };
  });
  return { bins, num_rewarded: rewards.length, num_without: rows.length - rewards.length };
}
