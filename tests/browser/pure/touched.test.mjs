// Which answers a change touches, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { isTouched } from "../../../agent_layer/view/page/pure/touched.js";

const trajectory = { kind: "trajectory", runs: ["r 1"], ids: ["a.0-0"], num: 1 };
const fleet = { kind: "fleet", runs: [], ids: [""], num: 1 };

/** @param {string[]} paths @param {any} change */
const touched = (paths, change) => paths.filter((path) => isTouched(path, change));

test("a trajectory touches itself, its run, its group, and lists that may hold it", () => {
  const paths = ["trajectories/a.0-0", "trajectories/a.0-0/forks", "runs/r%201", "runs/r%201/updates", "runs", "groups/g", "query?limit=50", "facets?run=r+1", "diff?a=b&b=a.0-0"];
  assert.deepEqual(touched(paths, trajectory), paths);
  assert.deepEqual(touched(["trajectories/b.0-0", "runs/r2", "query?run=r2", "diff?a=b&b=c", "workers", "info"], trajectory), []);
});

test("a step of a rollout that goes on touches what counts it, not what updates say", () => {
  const step = { ...trajectory, kind: "step" };
  assert.deepEqual(touched(["runs/r%201", "query?run=r+1", "runs/r%201/learning?by=task_type", "runs/r%201/updates/3"], step).length, 4);
  assert.deepEqual(touched(["runs/r%201/updates", "runs/r%201/progress"], step), []);
});

test("orders to the fleet and judgements of trajectories are in the journal", () => {
  assert.ok([trajectory, fleet, null].every((change) => isTouched("writes?limit=20", change)));
  assert.ok(["step", "update", "group", "run"].every((kind) => !isTouched("writes?limit=20", { ...trajectory, kind })));
});

test("where not all ids are told, each may be among them", () => {
  assert.ok(isTouched("trajectories/b.0-0", { ...trajectory, num: 101 }));
});

test("an update touches its run and what it may have trained", () => {
  const update = { kind: "update", runs: ["r 1"], ids: ["r 1/3"], num: 1 };
  assert.deepEqual(touched(["runs/r%201/updates/3", "trajectories/b.0-0", "groups/g", "runs/r2", "queue"], update), ["runs/r%201/updates/3", "trajectories/b.0-0", "groups/g"]);
});

test("a group touches itself, not another one", () => {
  const group = { kind: "group", runs: ["r 1"], ids: ["g"], num: 1 };
  assert.deepEqual(touched(["groups/g", "groups/h", "trajectories/a.0-0", "runs/r%201"], group), ["groups/g", "runs/r%201"]);
});

test("the fleet touches what it shows alone; to reload touches everything", () => {
  const paths = ["workers", "queue", "engines", "dead", "sandboxes", "runs", "trajectories/a.0-0"];
  assert.deepEqual(touched(paths, fleet), paths.slice(0, 5));
  assert.deepEqual(touched(paths, null), paths);
});
