// Addresses of the page: what is written is read back.
import assert from "node:assert/strict";
import { test } from "node:test";
import { changed, hrefOf, parseRoute } from "../../../agent_layer/view/page/pure/address.js";

test("an address is read back as it was written", () => {
  const route = parseRoute(hrefOf(["run", "a/b c?#%"], { reward: "0..1", label: "a=b&c" }));
  assert.deepEqual([route.name, route.parts, Object.fromEntries(route.query)], ["run", ["a/b c?#%"], { reward: "0..1", label: "a=b&c" }]);
});

test("a broken or empty address is the list of runs", () => {
  assert.equal(parseRoute("").name, "runs");
  assert.deepEqual(parseRoute("#/run/%E0%A4%A").parts, ["%E0%A4%A"]);
});

test("changes leave the other filters, and null removes one", () => {
  const query = new URLSearchParams("run=a&task=b");
  assert.equal(changed(query, { task: null, reward: "1.." }).toString(), "run=a&reward=1..");
  assert.equal(query.toString(), "run=a&task=b");
});
