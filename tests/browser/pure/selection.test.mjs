// Filters, counts and the histogram of an export: the names and rules of the API, over rows that are all here.
import assert from "node:assert/strict";
import { test } from "node:test";
import { facetsOf, histogramOf, selected } from "../../../agent_layer/view/page/pure/selection.js";
import { slicedTokens } from "../../../agent_layer/view/page/pure/tokens.js";

const row = (id, fields = {}) => ({ trajectory_id: id, task_id: "t", run: "r", status: "completed", cause: null, accepted: true, reward: 0, policy_min: 1, policy_max: 3, agents: ["a"], tools: [], findings: [], engines: [], labels: {}, started_at: null, ...fields });
const ROWS = [
  row("a", { reward: 1, started_at: "2026-01-01T00:00:03Z", agents: ["a", "b"], engines: ["http://e:1"] }),
  row("b", { reward: -0.5, status: "failed", cause: "infra", started_at: "2026-01-01T00:00:05Z", task_id: "u" }),
  row("c", { reward: null, policy_min: null, policy_max: null, accepted: false, labels: { team: "x=y" } }),
  row("d", { reward: 0.5, policy_min: 7, policy_max: 9 }),
];
const ids = (query) => selected(ROWS, new URLSearchParams(query)).map((one) => one.trajectory_id).join("");

test("filters have the names of the command line", () => {
  assert.equal(ids("task=u"), "b");
  assert.equal(ids("agent=b&limit=5&bins=12"), "a");
  assert.equal(ids("engine=http%3A%2F%2Fe%3A1"), "a");
  assert.deepEqual(facetsOf(ROWS).engine, [{ value: "http://e:1", count: 1 }]);
  assert.equal(ids("status=completed&accepted=1"), "ad");
  assert.equal(ids("label=team%3Dx%3Dy"), "c");
  assert.equal(ids("cause=infra&run="), "b");
});

test("null never matches a range, and both ends of one count", () => {
  assert.equal(ids("reward=0.5.."), "ad");
  assert.equal(ids("reward=..-0.5"), "b");
  assert.equal(ids("reward=1"), "a");
  assert.equal(ids("policy=3..7"), "bad");
  assert.equal(ids("policy=10.."), "");
});

test("orders are those of the API", () => {
  assert.equal(ids("").slice(0, 2), "ba");
  assert.equal(ids("order=reward"), "adb");
  assert.equal(ids("order=policy"), "dba");
});

test("a filter that rows cannot answer is named, hostile ones too", () => {
  for (const name of ["since", "__proto__", "constructor"]) assert.match(selected(ROWS, new URLSearchParams({ [name]: "2h" })), new RegExp(`^The filter ${name}=2h needs the store`));
  assert.equal(ids("label=constructor%3D1"), "");
});

test("each bin finds by its filter the rows that it counts", () => {
  const { bins, num_rewarded: rewarded, num_without: without } = histogramOf(ROWS);
  assert.deepEqual([rewarded, without, bins.reduce((all, one) => all + one.count, 0)], [3, 1, 3]);
  for (const bin of bins.filter((one) => one.count)) assert.equal(ids(new URLSearchParams(bin.filters)).length, bin.count);
  assert.equal(histogramOf([]).bins.length, 0);
  assert.equal(histogramOf(ROWS, 12).bins.length, 12);
  assert.deepEqual(histogramOf([row("x", { reward: 2 })]).bins.map((one) => one.count), [1]);
});

test("facets count values, the most frequent first", () => {
  const facets = facetsOf(ROWS);
  assert.deepEqual(facets.status, [{ value: "completed", count: 3 }, { value: "failed", count: 1 }]);
  assert.deepEqual(facets.agent, [{ value: "a", count: 4 }, { value: "b", count: 1 }]);
  assert.deepEqual(facets.tool, []);
});

test("a page of tokens is cut where it is asked for", () => {
  const columns = Object.fromEntries(["ids", "texts", "sampled", "steps", "logprobs", "trained_logprobs", "advantages", "mask", "versions"].map((name) => [name, [5, 6, 7]]));
  const page = { begin: 10, end: 13, total: 40, ...columns };
  assert.equal(slicedTokens(page, 10, 30), page);
  assert.deepEqual([slicedTokens(page, 11, 12).ids, slicedTokens(page, 11, 12).begin, slicedTokens(page, 11, 12).end], [[6], 11, 12]);
  assert.deepEqual(slicedTokens(page, 14, 20).ids, []);
});
