// Two rollouts of a task up to the step and the token at which they part, and what each did then.
import { html, useEffect, useState } from "../core/ui.js";
import { go, hrefOf } from "../core/router.js";
import { get, pathOf, useResource } from "../core/api.js";
import { useKeys } from "../core/keys.js";
import { Await, Badge, Card, PageHead, Tile } from "../parts/basic.js";
import { Said } from "../parts/step_card.js";
import { contentText, number, percent, readable, shortId, signed, versions } from "../pure/format.js";
import { visible } from "../pure/tokens.js";

/** @typedef {import("../core/types.js").Diff} Diff */
/** @typedef {import("../core/types.js").Trajectory} Trajectory */
/** @typedef {import("../core/types.js").TokenPage} TokenPage */
const BEFORE = 48;
const BEHIND = 72;

/** @param {{route: import("../core/router.js").Route}} props */
export function DiffView({ route }) {
  const [a = "", b = ""] = route.parts;
  const found = useResource(pathOf(["diff"], { a, b }));
  return html`<${Await} resource=${found}>${(/** @type {Diff} */ diff) => html`<${Whole} diff=${diff} a=${a} b=${b} />`}<//>`;
}

/** @param {{diff: Diff, a: string, b: string}} props */
function Whole({ diff, a, b }) {
  const [one, other] = [useResource(pathOf(["trajectories", a])), useResource(pathOf(["trajectories", b]))];
  const { first_step: step, first_token: token, steps } = diff;
  const siblings = /** @type {Trajectory | null} */ (one.data)?.siblings.trajectory_ids ?? [];
  const at = siblings.indexOf(b);
  /** @param {number} by */
  const turn = (by) => {
    const next = siblings.filter((name) => name !== a)[siblings.filter((name) => name !== a).indexOf(b) + by];
    if (at >= 0 && next) go(hrefOf(["diff", a, next]));
  };
  useKeys({ ArrowLeft: () => turn(-1), ArrowRight: () => turn(1), x: () => go(hrefOf(["diff", b, a])) });
  const most = Math.max(diff.num_tokens_a, diff.num_tokens_b);
  const group = diff.a.group_id;
  const broken = Object.entries(diff.damaged);
  const told = broken.length ? "–" : step === null ? "nowhere" : `step ${step}`;
  const part = step === null ? null : steps[step]?.part;
  return html`<${PageHead} title="Where two rollouts part" crumbs=${html`<a href=${hrefOf(["run", diff.a.run])}>${diff.a.run}</a>${group && html` / <a href=${hrefOf(["group", group])}>group of ${diff.a.task_id}</a>`}`}
      more=${html`<a class="button" href=${hrefOf(["diff", b, a])} title="x">swap</a>${siblings.length > 2 && html`<button class="button" onClick=${() => turn(-1)} aria-label="Previous sibling">←</button><button class="button" onClick=${() => turn(1)} aria-label="Next sibling">→</button>`}`} />
    <dl class="tiles"><${Tile} label="They part at" value=${told} note=${broken.length ? "not known" : step === null ? "both are equal" : part === "prompt" ? "the world answered differently" : part === "answer" ? "the policy answered differently" : "one of them has ended"} />
      <${Tile} label="Shared tokens" value=${number(token ?? (step === null && !broken.length ? most : null))} note=${token !== null && most ? `${percent(token / most)} of the longer one` : ""} />
      <${Tile} label="Reward of A" value=${number(diff.a.reward)} note=${`${number(diff.a.num_steps)} steps, ${versions(diff.a.policy_min, diff.a.policy_max)}`} /><${Tile} label="Reward of B" value=${number(diff.b.reward)} note=${`${number(diff.b.num_steps)} steps, ${versions(diff.b.policy_min, diff.b.policy_max)}`} />
      <${Tile} label="B minus A" value=${diff.a.reward === null || diff.b.reward === null ? "–" : signed(diff.b.reward - diff.a.reward)} note="reward" /></dl>
    ${token !== null && html`<${Card} title="The token" more="what comes before is shared"><${Parting} a=${a} b=${b} at=${token} /><//>`}
    ${broken.map(([side, why]) => html`<p class="note-box bad" key=${side}>${side.toUpperCase()} is damaged, so nothing can be compared: ${why}</p>`)}
    ${broken.length ? "" : one.data && other.data ? html`<${Sides} diff=${diff} one=${one.data} other=${other.data} />` : html`<div class="loading" role="status" aria-label="Loading"></div>`}`;
}

/** Tokens around the place where both part. @param {{a: string, b: string, at: number}} props */
function Parting({ a, b, at }) {
  const [pages, setPages] = useState(/** @type {TokenPage[] | null} */ (null));
  const from = Math.max(0, at - BEFORE);
  useEffect(() => {
    const abort = new AbortController();
    const ask = (/** @type {string} */ id) => get(pathOf(["trajectories", id, "tokens"], { from: String(from), to: String(at + BEHIND) }), abort.signal);
    Promise.all([ask(a), ask(b)]).then(setPages, () => {});
    return () => abort.abort();
  }, [a, b, at]);
  if (!pages) return html`<div class="loading" role="status" aria-label="Loading"></div>`;
  const [one, other] = pages;
  return html`<p class="strip"><span class="side quiet">both</span><span class="run">${from > 0 && html`<span class="quiet">…</span>`}${texts(one, 0, at - from)}</span></p>
    ${[["A", one], ["B", other]].map(([name, page]) => html`<p class="strip" key=${name}><b class="side">${name}</b><span class="run" data-side=${name}>${texts(/** @type {TokenPage} */ (page), at - from, Infinity)}</span></p>`)}
    <p class="facts">${[["A", one], ["B", other]].map(([name, page]) => html`<span key=${name}>${told(/** @type {string} */ (name), /** @type {TokenPage} */ (page), at - from)}</span>`)}</p>`;
}

/** @param {TokenPage | undefined} page @param {number} begin @param {number} end */
function texts(page, begin, end) {
  return (page?.ids ?? []).slice(begin, Math.min(end, page?.ids.length ?? 0)).map((id, key) => html`<span key=${key} class=${`t ${page?.sampled[begin + key] ? "" : "given"} ${key === 0 && end === Infinity ? "parted" : ""}`}>${visible(page?.texts[begin + key] ?? null, id)}</span>`);
}

/** @param {string} name @param {TokenPage} page @param {number} at */
function told(name, page, at) {
  if (page.ids[at] === undefined) return html`${name} <b>ends here</b>`;
  const logprob = page.logprobs[at] ?? null;
  const how = page.sampled[at] ? (logprob === null ? "sampled" : `sampled with probability ${percent(Math.exp(logprob))} (${number(logprob)})`) : "given by the prompt";
  return html`${name}: <b class="mono">${visible(page.texts[at] ?? null, page.ids[at] ?? 0)}</b> ${how}`;
}

/** @param {{diff: Diff, one: Trajectory, other: Trajectory}} props */
function Sides({ diff, one, other }) {
  const shared = diff.first_step ?? diff.steps.length;
  const sides = /** @type {[string, Trajectory, "a" | "b"][]} */ ([["A", one, "a"], ["B", other, "b"]]);
  return html`${shared > 0 && html`<p class="note-box small">${shared === 1 ? "Step 0 is" : `Steps 0 to ${shared - 1} are`} the same in both.</p>`}
    <div class="halves pair">${sides.map(([name, data, key]) => html`<${Card} key=${name} title=${`${name} · ${shortId(data.row.trajectory_id, 22)}`} more=${html`<${Badge} status=${data.row.status} /> <a href=${hrefOf(["trajectory", data.row.trajectory_id])}>open</a>`}>
      ${diff.steps.slice(shared).map((pair) => (pair[key] === null ? "" : html`<${Turn} key=${pair[key]} step=${data.steps[/** @type {number} */ (pair[key])]} pair=${pair} />`))}
      ${diff.steps.slice(shared).every((pair) => pair[key] === null) && html`<p class="small quiet">It has ended.</p>`}<//>`)}</div>`;
}

/** @param {{step: import("../core/types.js").Step | undefined, pair: import("../core/types.js").DiffStep}} props */
function Turn({ step, pair }) {
  if (!step) return "";
  const calls = (step.message?.tool_calls ?? []).map((/** @type {any} */ call) => `${readable((call.function ?? call).name)}(${readable((call.function ?? call).arguments)})`);
  return html`<div class="turn-pair"><p class="who small"><b>Step ${step.index}</b> ${pair.is_same ? html`<span class="quiet">the same</span>` : html`<${Badge} status=${pair.part === "prompt" ? "prompt differs" : pair.part === "answer" ? "answer differs" : "only here"} tone="warn" />`}${step.reward !== null && html`<span class="badge accent">reward ${number(step.reward)}</span>`}</p>
    ${step.new_messages.filter((one) => one.role !== "system").map((one, key) => html`<${Said} key=${key} role=${one.role} text=${contentText(one.content)} isCode=${one.role === "tool"} />`)}
    <${Said} role="assistant" text=${[contentText(step.message?.content), ...calls].filter(Boolean).join("\n") || step.error || ""} /></div>`;
}
