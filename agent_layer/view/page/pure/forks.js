// The tree of prefixes as geometry: a row for each branch, tokens along it.

/** @typedef {{step: number, parent: number | null, link: "tokens" | "call" | null, prefix_length: number, num_given: number, num_sampled: number}} Node */
/** @typedef {{step: number, row: number, start: number, sampledFrom: number, end: number, from: {row: number, at: number} | null}} Placed */

/** Place each step: the first child goes on in its parent's row, others get rows beneath it; `start` to `end` are tokens of its context.
 * @param {Node[]} nodes by step @returns {{placed: Placed[], numRows: number, numTokens: number}} */
export function placedForks(nodes) {
  /** @type {Map<number | null, number[]>} */
  const children = new Map();
  for (const { step, parent, link } of nodes) {
    const key = link === null ? null : parent;
    children.set(key, [...(children.get(key) ?? []), step]);
  }
  const byStep = new Map(nodes.map((node) => [node.step, node]));
  /** @type {Map<number, Placed>} */
  const placed = new Map();
  let numRows = 0;
  // Depth first, without recursion: a trajectory may have thousands of steps in one row.
  const waiting = [...(children.get(null) ?? [])].reverse().map((step) => ({ step, row: -1 }));
  while (waiting.length) {
    const { step, row: asked } = /** @type {{step: number, row: number}} */ (waiting.pop());
    const node = byStep.get(step);
    if (!node || placed.has(step)) continue;
    const row = asked < 0 ? numRows++ : asked;
    const before = node.parent === null ? undefined : placed.get(node.parent);
    const start = node.link === "tokens" ? before?.end ?? node.prefix_length : 0;
    const sampledFrom = start + node.num_given;
    const from = before && row !== before.row ? { row: before.row, at: before.end } : null;
    placed.set(step, { step, row, start, sampledFrom, end: sampledFrom + node.num_sampled, from });
    const next = children.get(step) ?? [];
    const main = next.find((one) => byStep.get(one)?.link === "tokens");
    for (const one of next.filter((other) => other !== main).reverse()) waiting.push({ step: one, row: -1 });
    if (main !== undefined) waiting.push({ step: main, row });
  }
  const all = nodes.map((node) => placed.get(node.step)).filter((one) => one !== undefined);
  return { placed: all, numRows, numTokens: Math.max(1, ...all.map((one) => one.end)) };
}

/** What a cause of a broken prefix means. @type {Record<string, string>} */
export const CAUSES = {
  template: "the chat template renders earlier messages otherwise than they were sampled",
  reserialised_tool_call: "the agent sent a tool call back in another spelling than the model wrote",
  dropped_reasoning: "the agent sent an answer back without its reasoning; AGENT_LAYER_DROPPED_REASONING=restore puts it back",
  edited_history: "the agent changed or dropped earlier messages",
  compaction: "the agent replaced earlier messages by fewer",
};

/** @typedef {import("./tokens.js").Columns & {parts: {step: number, start: number, num_given: number, num_sampled: number, prefix_length: number, parent: number | null}[]}} Whole */
/** A token of a context: its text and its id. @typedef {[string | null, number]} Token */

/** Tokens that each step had in its prompt, then those it sampled; a parent stands before its children.
 * @param {Whole} whole @returns {Map<number, Token[]>} */
function contextsOf({ ids, texts, parts }) {
  /** @type {Map<number, Token[]>} */
  const found = new Map();
  for (const { step, start, num_given: given, num_sampled: sampled, prefix_length: shared, parent } of parts) {
    const before = parent === null ? [] : found.get(parent)?.slice(0, shared) ?? [];
    found.set(step, [...before, ...ids.slice(start, start + given + sampled).map((id, at) => /** @type {Token} */ ([texts[start + at] ?? null, id]))]);
  }
  return found;
}

/** Where the prompt of a step leaves the tokens of the earlier step that it follows for longest, and how both go on.
 * @param {Whole} whole all tokens of a trajectory @param {number} step @returns {{other: number, at: number, shared: Token[], expected: Token[], got: Token[]} | null} */
export function breakOf(whole, step) {
  const part = whole.parts.find((one) => one.step === step);
  if (!part) return null;
  const contexts = contextsOf(whole);
  const context = contexts.get(step) ?? [];
  const got = context.slice(0, context.length - part.num_sampled);
  let best = null;
  for (const [other, expected] of contexts) {
    if (other >= step) continue;
    const first = expected.findIndex(([, id], at) => id !== got[at]?.[1]);
    if (first >= 0 && (!best || first >= best.at)) best = { other, at: first, shared: got.slice(0, first), expected: expected.slice(first), got: got.slice(first) };
  }
  return best;
}
