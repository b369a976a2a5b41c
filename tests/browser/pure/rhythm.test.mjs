// How soon the page asks again, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { restAfter, ROUND_MS } from "../../../agent_layer/view/page/pure/rhythm.js";

test("while changes go on, questions become rarer, but never rare", () => {
  const rests = [ROUND_MS];
  for (let number = 0; number < 4; number++) rests.push(restAfter(rests.at(-1), rests.at(-1), 5));
  assert.deepEqual(rests, [1000, 2000, 4000, 4000, 4000]);
});

test("after a pause the next change is shown soon again", () => {
  assert.equal(restAfter(4000, 8000, 5), ROUND_MS);
  assert.equal(restAfter(ROUND_MS, Infinity, 5), ROUND_MS);
});

test("what takes the server long is asked rarely", () => {
  assert.equal(restAfter(4000, 4000, 300), 6000);
  assert.equal(restAfter(ROUND_MS, Infinity, 100), 2000);
  assert.equal(restAfter(4000, 4000, 60_000), 30_000);
});
