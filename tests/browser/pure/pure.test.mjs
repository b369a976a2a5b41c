// Pure modules of the page, without a browser: `node --test tests/browser/pure/`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { classOfTint, colourOfShade, shadesOf, tintAroundZero, tintOfLogprob, tintOfMask, tintOfShade } from "../../../agent_layer/view/page/pure/colour.js";
import { clock, contentText, epoch, imagesOf, number, percent, percentsOf, seconds, shortId, signed, versions } from "../../../agent_layer/view/page/pure/format.js";
import { errorLine, toggledAll } from "../../../agent_layer/view/page/pure/dead.js";
import { fleetSentence } from "../../../agent_layer/view/page/pure/fleet.js";
import { placeOf } from "../../../agent_layer/view/page/pure/health.js";
import { breakOf, CAUSES, placedForks } from "../../../agent_layer/view/page/pure/forks.js";
import { curvesOf, sharesOf } from "../../../agent_layer/view/page/pure/learning.js";
import { draftSentence, isEmpty, labelOf, nextOf, NOTHING, ordersOf, withRecent } from "../../../agent_layer/view/page/pure/review.js";
import { overlaid } from "../../../agent_layer/view/page/pure/overlay.js";
import { besideOf, packedRows, phasesOf, ticks, windowOf } from "../../../agent_layer/view/page/pure/layout.js";
import { appended, bucketMeans, noColumns, ratioAt, rowStarts, visible } from "../../../agent_layer/view/page/pure/tokens.js";

/** @param {(string | null)[]} texts @param {number[]} [sampled] */
function columnsOf(texts, sampled = texts.map(() => 1)) {
  const none = texts.map(() => null);
  return { ids: texts.map((_, at) => at), texts, sampled, steps: texts.map(() => 0), logprobs: none, trained_logprobs: none, advantages: none, mask: none, versions: none };
}

test("what is not known is a dash, and never zero", () => {
  for (const tell of [number, percent, signed, seconds, clock]) assert.equal(tell(null), "–");
  assert.deepEqual([number(0), percent(0), versions(null, 3)], ["0", "0 %", "–"]);
});

test("numbers, shares and durations read well", () => {
  assert.deepEqual([number(1234567), number(0.5), percent(0.976), percent(0.034)], ["1,234,567", "0.50", "98 %", "3.4 %"]);
  assert.deepEqual([seconds(0.05), seconds(2.345), seconds(75), seconds(125), seconds(300), seconds(725), seconds(7200)], ["50 ms", "2.3 s", "75 s", "2 min 5 s", "5 min", "12 min", "2.0 h"]);
  assert.deepEqual([signed(-0.5), signed(0.5), signed(0), versions(3, 3), versions(3, 5)], ["−0.50", "+0.50", "0.00", "v3", "v3–5"]);
});

test("a minus is a minus sign, and shares sum to 100", () => {
  assert.deepEqual([number(-0.5), number(-1200)], ["−0.50", "−1,200"]);
  assert.deepEqual(percentsOf([60, 18, 2]), ["75 %", "23 %", "2 %"]);
  assert.deepEqual(percentsOf([1, 1, 1]), ["34 %", "33 %", "33 %"]);
  assert.deepEqual(percentsOf([1, 0]), ["100 %", "0 %"]);
});

test("times are read as numbers and as text", () => {
  assert.equal(epoch("2026-11-25T12:00:00Z"), 1795608000);
  assert.equal(clock(1795608000), "12:00:00");
});

test("a long id keeps its ends", () => {
  assert.equal(shortId("short"), "short");
  const cut = shortId("01KB1234567890ABCDEFGH-1", 12);
  assert.ok(cut.length <= 12 && cut.startsWith("01KB") && cut.endsWith("-1"), cut);
});

test("content of messages is text, whatever its form", () => {
  assert.equal(contentText([{ type: "text", text: "a" }, "b"]), "a\nb");
  assert.equal(contentText(null), "");
  assert.equal(contentText({ a: 1 }), '{\n  "a": 1\n}');
});

test("images of what tools answered are found at any depth, and their texts stay", () => {
  const mark = { $image: "h" };
  assert.deepEqual(imagesOf([{ type: "image_url", image_url: { url: mark } }, mark, "$image"]), ["h", "h"]);
  const answered = [{ type: "tool_result", content: [{ type: "image", source: mark }, { type: "text", text: "seen" }] }];
  assert.deepEqual([imagesOf(answered), contentText(answered)], [["h"], "seen"]);
  const observed = { observation: "seen", images: [mark] };
  assert.deepEqual([imagesOf(observed), contentText(observed)], [["h"], "seen"]);
  assert.deepEqual([contentText(mark), contentText({ images: [] })], ["", '{\n  "images": []\n}']);
});

test("colours: unknown has none, zero has none, stronger is farther", () => {
  assert.equal(classOfTint(tintOfLogprob(null)), "");
  assert.equal(classOfTint(tintAroundZero(0, 1)), "");
  assert.equal(tintOfLogprob(-99)?.strength, 1);
  assert.equal(classOfTint(tintOfLogprob(-99)), " of-hue-4 tint-16");
  assert.equal(classOfTint(tintOfLogprob(-2.5)), " of-hue-4 tint-8");
  assert.notEqual(tintAroundZero(-1, 1)?.hue, tintAroundZero(1, 1)?.hue);
  assert.notEqual(tintOfMask(0)?.hue, tintOfMask(1)?.hue);
});

test("no two of eighteen versions look alike, and the newest is blue", () => {
  const versions = Array.from({ length: 18 }, (_, at) => 6 * at);
  const shades = shadesOf([...versions, null, undefined, 0]);
  assert.deepEqual([...shades.keys()], [...versions].reverse());
  assert.equal(colourOfShade(shades.get(102)), "var(--hue-0)");
  for (const look of [colourOfShade, (/** @type {any} */ one) => classOfTint(tintOfShade(one))]) assert.equal(new Set([...shades.values()].map(look)).size, 18);
  assert.deepEqual([colourOfShade(shades.get(1)), tintOfShade(shades.get(1))], ["var(--line-strong)", null]);
});

test("a virtual list has the rows in sight, and few more", () => {
  assert.deepEqual(windowOf(0, 100, 10, 1000, 2), { first: 0, end: 12 });
  assert.deepEqual(windowOf(9900, 100, 10, 1000, 2), { first: 988, end: 1000 });
});

test("marks of an axis are round and inside", () => {
  assert.deepEqual(ticks(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(ticks(3, 3), [3]);
});

test("phases follow each other, and an unknown moment joins two", () => {
  const times = { queued_at: 0, started_at: 1, run_ended_at: 5, scored_at: null, sealed_at: 6, accepted_at: 6, trained_at: 9 };
  assert.deepEqual(phasesOf(times), [
    { name: "queue", from: 0, to: 1 }, { name: "run", from: 1, to: 5 }, { name: "seal", from: 5, to: 6 }, { name: "wait", from: 6, to: 9 },
  ]);
});

test("a run of unknown end is drawn as a run up to the next moment, and a wait stays one", () => {
  const times = { queued_at: null, started_at: 1, run_ended_at: null, scored_at: null, sealed_at: null, accepted_at: 6, trained_at: 9 };
  assert.deepEqual(phasesOf(times), [{ name: "run", from: 1, to: 6 }, { name: "wait", from: 6, to: 9 }]);
  assert.deepEqual(phasesOf({ ...times, accepted_at: null }), [{ name: "wait", from: 1, to: 9 }]);
});

test("the neighbours of a step are those that exist", () => {
  assert.deepEqual([besideOf([1, 2, 5], 2), besideOf([1, 2, 5], 5), besideOf([1, 2, 5], 3), besideOf([], 1)], [[1, 5], [2, undefined], [2, 5], [undefined, undefined]]);
});

test("spans that overlap get rows of their own", () => {
  assert.deepEqual(packedRows([{ from: 0, to: 2 }, { from: 1, to: 3 }, { from: 2, to: 4 }]), [0, 1, 0]);
});

test("a break is shown against the earlier step whose tokens it follows for longest", () => {
  const texts = ["a", "b", "c", "a", "x", "a", "b", "d", "e"];
  const ids = texts.map((text) => text.charCodeAt(0));
  const part = { prefix_length: 0, parent: null };
  const parts = [{ ...part, step: 0, start: 0, num_given: 2, num_sampled: 1 }, { ...part, step: 1, start: 3, num_given: 1, num_sampled: 1 }, { ...part, step: 2, start: 5, num_given: 3, num_sampled: 1 }];
  const found = breakOf({ ...columnsOf(texts), ids, parts }, 2);
  assert.deepEqual([found?.other, found?.at, found?.shared.map(([text]) => text), found?.expected, found?.got], [0, 2, ["a", "b"], [["c", 99]], [["d", 100]]]);
  assert.equal(breakOf({ ...columnsOf(texts), ids, parts }, 0), null);
  const continued = [parts[0], { step: 1, start: 3, num_given: 1, num_sampled: 1, prefix_length: 3, parent: 0 }, parts[2]];
  assert.deepEqual(breakOf({ ...columnsOf(texts), ids, parts: continued }, 2)?.expected.map(([text]) => text), ["c", "a", "x"]);
  assert.deepEqual(Object.keys(CAUSES), ["template", "reserialised_tool_call", "dropped_reasoning", "edited_history", "compaction"]);
});

test("control characters, direction marks and unknown texts are shown as signs", () => {
  assert.deepEqual([visible("a\n", 1), visible("\u202e", 1), visible("\u0000", 1), visible(null, 7), visible("", 1)], ["a↵", "␦", "␦", "⟨7⟩", "∅"]);
});

test("rows hold every token once, break at line ends and where sampling begins", () => {
  const columns = columnsOf(["aa", "bb\n", "cc", "dd", "ee"], [0, 0, 0, 0, 1]);
  assert.deepEqual([...rowStarts(columns, 4)], [0, 1, 2, 4, 5]);
  assert.deepEqual([...rowStarts(columnsOf([]), 4)], [0, 0]);
});

test("rows of 128,000 tokens are laid out within a second", () => {
  const columns = columnsOf(Array.from({ length: 128_000 }, (_, at) => (at % 50 ? " word" : "\n")));
  const start = performance.now();
  const rows = rowStarts(columns, 120);
  assert.ok(performance.now() - start < 1000);
  assert.equal(rows.at(-1), 128_000);
});

test("pages of tokens join, and a ratio needs both log-probabilities", () => {
  const page = { ...columnsOf(["a", "b"]), logprobs: [-1, null], trained_logprobs: [-0.5, -1] };
  const columns = appended(appended(noColumns(), page), page);
  assert.equal(columns.ids.length, 4);
  assert.deepEqual([ratioAt(columns, 0), ratioAt(columns, 1)], [0.5, null]);
});

test("a curve has a mean for each neighbourhood, and a hole where nothing is known", () => {
  assert.deepEqual(bucketMeans([1, 3, null, null, 5], 3), { x: [0, 2, 4], y: [2, null, 5] });
});

test("forks: the first continuation keeps the row, other branches and calls get rows beneath", () => {
  const node = (/** @type {any} */ own) => ({ parent: null, link: null, prefix_length: 0, num_given: 2, num_sampled: 3, ...own });
  const tree = [node({ step: 0 }), node({ step: 1, parent: 0, link: "tokens", prefix_length: 5 }), node({ step: 2, parent: 0, link: "tokens", prefix_length: 5 }), node({ step: 3, parent: 1, link: "call" })];
  const { placed, numRows, numTokens } = placedForks(tree);
  assert.deepEqual(placed.map(({ step, row, start, end }) => [step, row, start, end]), [[0, 0, 0, 5], [1, 0, 5, 10], [2, 2, 5, 10], [3, 1, 0, 5]]);
  assert.deepEqual([numRows, numTokens, placed[2]?.from, placed[3]?.from], [3, 10, { row: 0, at: 5 }, { row: 0, at: 10 }]);
});

test("forks: thousands of steps in a row need no recursion", () => {
  const nodes = Array.from({ length: 5000 }, (_, step) => ({ step, parent: step ? step - 1 : null, link: /** @type {any} */ (step ? "tokens" : null), prefix_length: step * 2, num_given: 1, num_sampled: 1 }));
  assert.deepEqual([placedForks(nodes).numRows, placedForks(nodes).numTokens], [1, 10000]);
});

test("fleet: what needs a hand comes first", () => {
  const queue = (/** @type {any} */ own = {}) => ({ totals: { num_queued: 0, num_leased: 0, num_dead: 0 }, backlog: [], runs: [], leases: [], ...own });
  const waits = queue({ totals: { num_queued: 3, num_leased: 0, num_dead: 0 }, backlog: [{ needs: ["gpu"], num: 3, num_workers: 0 }] });
  const [up, engine] = [{ state: "up" }, { url: "http://e:1", state: "serving", is_drained: false, version: 3, newest_version: 7, behind_seconds: 0, is_stale: false }];
  assert.equal(fleetSentence([], waits, [engine]).sentence, "3 rollouts wait, and no worker is up.");
  assert.equal(fleetSentence([up], waits, [engine]).sentence, "3 rollouts wait for gpu, which no worker offers.");
  assert.equal(fleetSentence([up], queue(), [{ ...engine, is_drained: true }]).level, "warn");
  assert.equal(fleetSentence([], queue(), []).level, "unknown");
  const stale = { ...engine, behind_seconds: 725, is_stale: true };
  assert.deepEqual(fleetSentence([up], queue(), [engine, stale]), { level: "warn", sentence: "Engine e:1 serves v3 and has been behind v7 for 12 min." });
  assert.equal(fleetSentence([up], queue(), [engine, { ...stale, is_drained: true }]).level, "ok");
  const runs = [{ run: "a", paused: null, num_queued: 20, num_leased: 0 }, { run: "b", paused: null, num_queued: 0, num_leased: 4 }];
  assert.equal(fleetSentence([up], queue({ runs }), [engine]).sentence, "Run a holds no slot while 20 rollouts of it wait; b holds 4.");
  assert.equal(fleetSentence([up], queue({ runs: runs.map((one) => ({ ...one, paused: "by hand" })) }), [engine]).sentence, "Run a is paused.");
  const leases = [{ worker: "w", lease_seconds: 4, is_lapsing: true }, { worker: "w", lease_seconds: 15, is_lapsing: false }];
  assert.equal(fleetSentence([up], queue({ leases }), [engine]).sentence, "1 lease of worker w lapses in 4.0 s: it missed a heartbeat.");
  assert.deepEqual(fleetSentence([up], queue(), [engine]), { level: "ok", sentence: "1 worker and 1 engine are up; 0 rollouts run, 0 wait." });
});

test("a finding leads to the view that shows it", () => {
  const finding = (/** @type {any} */ own) => ({ name: "x", level: /** @type {"warn"} */ ("warn"), value: 1, limit: 0, since_step: null, sentence: "", advice: "", ...own });
  assert.deepEqual(placeOf("r", 3, finding({ view: "trajectories", filters: { finding: "prefix_break" } })), { title: "its trajectories", parts: ["trajectories"], query: { run: "r", finding: "prefix_break" } });
  assert.deepEqual(placeOf("r", 3, finding({ view: "fleet", filters: { engine: "http://e" } }))?.query, { engine: "http://e" });
  assert.deepEqual(placeOf("r", 3, finding({ view: "update" }))?.parts, ["update", "r", "3"]);
  assert.deepEqual(placeOf("r", 3, finding({ view: "update", since_step: 2 })), { title: "update 2", parts: ["update", "r", "2"], query: {} });
  assert.deepEqual([placeOf("r", null, finding({ view: "update" })), placeOf("r", 3, finding({}))], [null, null]);
});

test("learning: the most frequent kinds become curves with gaps, and steps become shares", () => {
  const point = (/** @type {string} */ key, /** @type {number | null} */ version, /** @type {number | null} */ rate, count = 1) => ({ key, version, count, success_rate: rate, mean_reward: rate });
  const { x, curves } = curvesOf([point("a", 1, 0.5, 9), point("b", 0, 0.1), point("a", 3, 1), point("c", null, 1), point("b", 2, null)], "success_rate", 1);
  assert.deepEqual([x, curves], [[0, 1, 3], [{ key: "a", values: [null, 0.5, 1] }]]);
  assert.deepEqual(sharesOf({ wait: [3, 0], update: [1, null] }, ["wait", "update"]), [[0.75, null], [0.25, null]]);
});

test("dead letters are chosen by their last error, all or none", () => {
  assert.deepEqual([errorLine(["a", "b\n  c"]), errorLine([]), errorLine(["x".repeat(200)]).length], ["b c", "", 160]);
  assert.deepEqual(toggledAll(["a"], ["b", "c"]), ["a", "b", "c"]);
  assert.deepEqual(toggledAll(["a", "b", "c"], ["b", "c"]), ["a"]);
  assert.deepEqual(toggledAll(["a", "b"], ["b", "c"]), ["a", "b", "c"]);
});

test("a judgement is told before it is given, and the queue goes on", () => {
  assert.ok(isEmpty(NOTHING) && isEmpty({ ...NOTHING, score: null, comment: " " }) && !isEmpty({ ...NOTHING, score: 0, comment: "" }));
  assert.match(draftSentence({ ...NOTHING, score: 0, comment: "" }, "g0", 1), /gives 0 to g0\. Its reward is 1 now/);
  assert.match(draftSentence({ ...NOTHING, score: null, comment: "slow" }, "g0", 1), /adds a comment to the reward 1/);
  assert.match(draftSentence({ ...NOTHING, score: null, comment: "slow" }, "g0", null), /choose a score/);
  assert.match(draftSentence({ ...NOTHING, score: 1, comment: "" }, "g0", null), /no reward now/);
  assert.match(draftSentence({ ...NOTHING, label: "cause=tool" }, "g0", null), /^Enter labels g0 cause=tool\.$/);
  assert.match(draftSentence({ ...NOTHING, label: "cause=" }, "g0", null), /^Enter withdraws the label cause of g0\.$/);
  assert.match(draftSentence({ score: 1, comment: "", label: "cause=tool" }, "g0", 0), /^Enter labels g0 cause=tool, and gives 1 to g0\./);
  assert.match(draftSentence({ ...NOTHING, score: 1, label: "cause" }, "g0", null), /NAME=VALUE/);
  assert.deepEqual([nextOf(["a", "b", "c"], 0, new Map([["b", 1]])), nextOf(["a", "b"], 1, new Map()), nextOf(["a", "b"], 0, new Map([["b", 1]]))], [2, 1, 1]);
});

test("what rounds to zero has no sign", () => {
  assert.deepEqual([signed(-0.001), signed(0.001), signed(-0.01), signed(2, 0)], ["0.00", "0.00", "−0.01", "+2"]);
});

test("two runs share an axis, each with gaps where only the other has a point", () => {
  const found = overlaid([1, 3], [[0.5, 0]], [2, 3, 5], [[null, 1, 0.25]]);
  assert.deepEqual(found, { x: [1, 2, 3, 5], curves: [[0.5, null, 0, null]], others: [[null, null, 1, 0.25]] });
  assert.deepEqual(overlaid([1], [[1]], [], []), { x: [1], curves: [[1]], others: [] });
});

test("a label is NAME=VALUE, and what is not complete is no order", () => {
  assert.deepEqual(labelOf(" verdict = wrong=ly "), { name: "verdict", value: "wrong=ly" });
  assert.deepEqual(labelOf("verdict="), { name: "verdict", value: null });
  for (const text of ["", "verdict", "=x", " =x"]) assert.equal(labelOf(text), null);
  assert.deepEqual(ordersOf({ ...NOTHING, score: 1, label: "verdict" }, "r"), []);
  assert.deepEqual(ordersOf(NOTHING, "r"), []);
  assert.deepEqual(ordersOf({ score: null, comment: " why ", label: "a=b" }, "r"), [{ what: "labels", body: { name: "a", value: "b", comment: "why" } }]);
  assert.deepEqual(ordersOf({ score: 0, comment: "why", label: "a=" }, "r"), [
    { what: "labels", body: { name: "a", value: null } },
    { what: "rewards", body: { name: "r", score: 0, comment: "why" } },
  ]);
  assert.deepEqual(ordersOf({ ...NOTHING, comment: "why" }, "r"), [{ what: "rewards", body: { name: "r", comment: "why" } }]);
  assert.deepEqual(withRecent(["a=1", "b=2", "c=3"], "b=2"), ["b=2", "a=1", "c=3"]);
  assert.deepEqual(withRecent(["a=1", "b=2", "c=3"], "d=4"), ["d=4", "a=1", "b=2"]);
});
