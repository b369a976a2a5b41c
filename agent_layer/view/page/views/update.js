// What one update learned from: each rollout's way from the queue into the update, and what was left out, and why.
import { html } from "../core/ui.js";
import { go, hrefOf } from "../core/router.js";
import { ApiError, pathOf, useResource } from "../core/api.js";
import { useKeys } from "../core/keys.js";
import { Await, Badge, Card, Empty, PageHead, Tile } from "../parts/basic.js";
import { useNarrow } from "../parts/narrow.js";
import { colourOfShade, shadesOf } from "../pure/colour.js";
import { clock, number, seconds, shortId, signed, versions } from "../pure/format.js";
import { besideOf, phasesOf, ticks } from "../pure/layout.js";

/** @typedef {import("../core/types.js").Lane} Lane */
/** Measures of the drawing, in its own units. On a telephone a unit is a pixel, and a lane is high enough for a finger. */
const WIDE = { width: 1000, lane: 18, left: 130, right: 70, letters: 20 };
const NARROW = { width: 335, lane: 26, left: 72, right: 44, letters: 10 };
const BAR = 11;
/** What each phase looks like, and what it is called. @type {Record<string, {told: string, height: number, look: (colour: string) => Record<string, any>}>} */
const LOOKS = {
  queue: { told: "in the queue", height: 3, look: () => ({ fill: "var(--line-strong)" }) },
  run: { told: "runs", height: BAR, look: (fill) => ({ fill }) },
  grade: { told: "is graded", height: BAR, look: (fill) => ({ fill, "fill-opacity": 0.4 }) },
  seal: { told: "is sealed", height: BAR - 1, look: (stroke) => ({ stroke, fill: "none" }) },
  wait: { told: "waits for the update", height: 3, look: (fill) => ({ fill }) },
};
/** A trainer that samples while it trains is one version behind; more is worth a mark. */
const MOST_BEHIND = 1;

/** @param {{route: import("../core/router.js").Route}} props */
export function UpdateView({ route }) {
  const [run = "", step = "0"] = route.parts;
  const update = useResource(pathOf(["runs", run, "updates", step]));
  const all = useResource(pathOf(["runs", run, "updates"]));
  const at = Number(step);
  const steps = all.data?.items.map((/** @type {{step: number}} */ one) => one.step) ?? [at - 1, at + 1]; // until they are known
  const [before, after] = besideOf(steps.filter((/** @type {number} */ one) => one > 0), at);
  const hrefOfStep = (/** @type {number} */ to) => hrefOf(["update", run, String(to)]);
  useKeys({ ArrowLeft: () => before !== undefined && go(hrefOfStep(before)), ArrowRight: () => after !== undefined && go(hrefOfStep(after)) });
  const more = [["←", "Previous update", before], ["→", "Next update", after]].map(([sign, told, to]) => (to === undefined ? html`<button class="button" key=${sign} disabled aria-label=${told}>${sign}</button>` : html`<a class="button" key=${sign} href=${hrefOfStep(Number(to))} aria-label=${told}>${sign}</a>`));
  return html`<${PageHead} crumbs=${html`<a href=${hrefOf(["runs"])}>Runs</a> / <a href=${hrefOf(["run", run])}>${run}</a>`} title=${`Update ${step}`} more=${more} />
    ${!update.data && update.error instanceof ApiError && update.error.status === 404 ? html`<${Missing} run=${run} beside=${[before, after]} why=${update.error.message} />` : html`<${Await} resource=${update}>${(/** @type {import("../core/types.js").UpdateDetail} */ data) => html`<${Whole} update=${data} />`}<//>`}`;
}

/** A step without an update: why there is none, and the updates beside it. @param {{run: string, beside: (number | undefined)[], why: string}} props */
const Missing = ({ run, beside, why }) => html`<div class="note-box" data-missing><p>${why}.</p>
    <p class="chips" style=${{ marginTop: "12px" }}>${beside.map((one) => one !== undefined && html`<a class="chip" key=${one} href=${hrefOf(["update", run, String(one)])}>Update ${one}</a>`)}<a class="chip" href=${hrefOf(["learning", run])}>Learning</a><a class="chip" href=${hrefOf(["trajectories"], { run })}>Trajectories</a></p></div>`;

/** @param {{update: import("../core/types.js").UpdateDetail}} props */
function Whole({ update }) {
  const { rollouts, excluded, groups } = update;
  const rewards = rollouts.map((one) => one.reward).filter((one) => one !== null);
  const known = rollouts.flatMap((one) => [one.policy_min, one.policy_max]).filter((one) => one !== null);
  const [lowest, highest] = known.length ? [Math.min(...known), Math.max(...known)] : [null, null];
  const changed = rollouts.filter((one) => one.reward_now !== null && one.reward_now !== one.reward).length;
  const gaps = Object.entries(update.gap_by_engine);
  const damaged = rollouts.filter((one) => one.damaged);
  return html`${update.findings.map((one) => html`<section class=${`health ${one.level}`} key=${one.name}><span class="sign" aria-hidden="true">${one.level === "stop" ? "✕" : "!"}</span><p class="sentence" data-finding=${one.name}>${one.title || one.name.replaceAll("_", " ")}${one.subject && ` (${one.subject})`}: ${one.sentence}.</p></section>`)}
    ${damaged.map((one) => html`<p class="note-box bad small" key=${one.trajectory_id}><a href=${hrefOf(["trajectory", one.trajectory_id])}>${shortId(one.trajectory_id, 30)}</a> is damaged, so its lane has what the batch says alone: ${one.damaged}</p>`)}
    <dl class="tiles"><${Tile} label="Learned from" value=${rollouts.length} note=${`rollouts, ${number(update.num_samples)} samples`} /><${Tile} label="Mean reward" value=${number(rewards.length ? rewards.reduce((all, one) => all + one, 0) / rewards.length : null)} />
      <${Tile} label="Weights" value=${`v${update.policy_version}`} note=${`learned from them at ${clock(update.trained_at)} UTC`} /><${Tile} label="Sampled by" value=${versions(lowest, highest)} note="oldest to newest version of its tokens" />
      <${Tile} label="Left out" value=${excluded.length} note=${changed ? `${changed} judged otherwise since` : ""} /></dl>
    <${Card} title="From the queue into the update"><${Lanes} rollouts=${rollouts} version=${update.policy_version} /><//>
    <${Card} title="Groups" flush><table class="table"><thead><tr><th scope="col">Group</th><th scope="col" class="right">Rollouts</th><th scope="col" class="right">Mean reward</th><th scope="col">Teaches</th></tr></thead><tbody>${groups.map((one) => html`<tr key=${one.group_id}><td><a href=${hrefOf(["group", one.group_id])}>${shortId(one.group_id, 30)}</a></td><td class="right">${one.num}</td><td class="right">${number(one.reward_mean)}</td><td>${one.is_zero_std ? html`<${Badge} status="nothing: all rewards are equal" tone="warn" />` : html`<${Badge} status="yes" tone="good" />`}</td></tr>`)}</tbody></table><//>
    ${gaps.length > 0 && html`<${Card} title="Trainer against engine" flush more="mean difference of a log-probability, over tokens that the trained weights sampled"><table class="table"><thead><tr><th scope="col">Engine</th><th scope="col" class="right">Nats</th></tr></thead><tbody>${gaps.map(([engine, gap]) => html`<tr key=${engine}><td><a href=${hrefOf(["trajectories"], { run: update.run, engine })}>${engine}</a></td><td class="right" data-gap=${engine}>${gap === null ? "not finite" : number(gap)}</td></tr>`)}</tbody></table><//>`}
    <${Card} title="Left out" flush>${update.not_learned.length > 0 && html`<${Empty}><span data-not-learned>Not in this update: ${update.not_learned.join(", ")}.</span><//>`}${excluded.length ? html`<table class="table"><thead><tr><th scope="col">Trajectory</th><th scope="col">Kind</th><th scope="col">Why</th></tr></thead><tbody>${excluded.map((one, key) => html`<tr key=${key}><td><a class="mono" href=${hrefOf(["trajectory", one.trajectory_id])}>${shortId(one.trajectory_id, 22)}</a></td><td><${Badge} status=${one.kind.replaceAll("_", " ")} tone="warn" /></td><td>${one.reason}</td></tr>`)}</tbody></table>` : !update.not_learned.length && html`<${Empty}>Nothing was left out.<//>`}<//>`;
}

/** The versions that sampled these rollouts, newest first; how old those are that are left behind.
 * @param {{rollouts: Lane[], shades: ReturnType<typeof shadesOf>, version: number}} props */
const Versions = ({ rollouts, shades, version }) => html`<div class="legend" data-versions>${[...shades].map(([one, shade]) => html`<span key=${one}><i class="swatch" style=${{ background: colourOfShade(shade) }}></i>sampled by v${one}: ${rollouts.filter((lane) => lane.policy_max === one).length}${version - one > MOST_BEHIND && html`<${Badge} status=${`${version - one} versions old`} tone="warn" />`}</span>`)}</div>`;

/** @param {{rollouts: Lane[], version: number}} props version: of the weights that learned */
function Lanes({ rollouts, version }) {
  const { width, lane: high, left, right, letters } = useNarrow() ? NARROW : WIDE;
  const lanes = rollouts.map((one) => ({ one, phases: phasesOf(one) })).sort((a, b) => (a.one.group_id < b.one.group_id ? -1 : a.one.group_id > b.one.group_id ? 1 : (a.phases[0]?.from ?? 0) - (b.phases[0]?.from ?? 0)));
  const times = lanes.flatMap(({ phases }) => phases.flatMap((phase) => [phase.from, phase.to]));
  if (!times.length) return html`<p class="small quiet">The times of these rollouts are not known.</p>`;
  const shades = shadesOf(rollouts.map((one) => one.policy_max));
  const [start, end] = [Math.min(...times), Math.max(...times)];
  const x = (/** @type {number} */ at) => left + ((at - start) / Math.max(end - start, 0.001)) * (width - left - right);
  const isOld = (/** @type {Lane} */ { policy_max: newest }) => newest !== null && version - newest > MOST_BEHIND;
  const height = lanes.length * high + 24;
  return html`<${Versions} rollouts=${rollouts} shades=${shades} version=${version} />
    <svg class="timeline lanes" viewBox=${`0 0 ${width} ${height}`} role="group" aria-label=${`${lanes.length} rollouts from the queue into the update, over ${seconds(end - start)}`}>
    ${ticks(0, end - start, width / 170).map((mark) => html`<g key=${mark}><line class="grid" x1=${x(start + mark)} x2=${x(start + mark)} y1="0" y2=${height - 18} /><text x=${x(start + mark)} y=${height - 5} text-anchor="middle">${seconds(mark)}</text></g>`)}
    ${lanes.map(({ one, phases }, lane) => {
      const middle = (lane + 0.5) * high;
      const colour = colourOfShade(shades.get(one.policy_max ?? -1));
      return html`<a key=${one.trajectory_id} href=${hrefOf(["trajectory", one.trajectory_id])} aria-label=${toldOf(one)}><title>${toldOf(one)}</title>
      <rect class="hit" x="0" y=${lane * high} width=${width} height=${high} />
      ${lanes[lane - 1]?.one.group_id !== one.group_id && html`<text x="0" y=${middle + 4}>${shortId(one.task_id ?? one.group_id, letters)}</text>`}
      ${phases.map(({ name, from, to }) => html`<rect key=${name} data-phase=${name} x=${x(from)} y=${middle - (LOOKS[name]?.height ?? 0) / 2} width=${Math.max(1, x(to) - x(from))} height=${LOOKS[name]?.height} rx="2" ...${LOOKS[name]?.look(colour)} />`)}
      ${isOld(one) && html`<text class="old" x=${left - 6} y=${middle + 4} text-anchor="end">v${one.policy_max}</text>`}
      <text x=${width} y=${middle + 4} text-anchor="end">${signed(one.advantage)}</text></a>`;
    })}</svg>
    <div class="legend">${[...new Set(lanes.flatMap(({ phases }) => phases.map((phase) => phase.name)))].map((name) => html`<span key=${name}><svg class="sample" viewBox="0 0 24 12" aria-hidden="true"><rect x="1" y=${6 - (LOOKS[name]?.height ?? 0) / 2} width="22" height=${LOOKS[name]?.height} rx="2" ...${LOOKS[name]?.look("var(--ink-2)")} /></svg>${LOOKS[name]?.told}</span>`)}<span>right: advantage</span></div>`;
}

/** @param {Lane} one */
const toldOf = (one) => `${one.trajectory_id}: ${versions(one.policy_min, one.policy_max)}, reward ${number(one.reward)}, advantage ${signed(one.advantage)}`;
