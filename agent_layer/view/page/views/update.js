// What one update learned from: each rollout's way from the queue into the update, and what was left out, and why.
import { html } from "../core/ui.js";
import { go, hrefOf } from "../core/router.js";
import { ApiError, pathOf, useResource } from "../core/api.js";
import { useKeys } from "../core/keys.js";
import { Await, Badge, Card, Empty, PageHead, Tile } from "../parts/basic.js";
import { hueOfVersion } from "../pure/colour.js";
import { clock, number, seconds, shortId, signed, versions } from "../pure/format.js";
import { phasesOf, ticks } from "../pure/layout.js";

/** @typedef {import("../core/types.js").Lane} Lane */
const WIDTH = 1000;
const LANE = 15;
const LEFT = 130;
/** Height and strength of each phase: the run is the strong one. @type {Record<string, {height: number, opacity: number, told: string}>} */
const LOOKS = { queue: { height: 3, opacity: 0.45, told: "queue" }, run: { height: 11, opacity: 1, told: "run" }, grade: { height: 11, opacity: 0.55, told: "grade" }, seal: { height: 11, opacity: 0.3, told: "seal" }, wait: { height: 3, opacity: 0.8, told: "waits for the update" } };

/** @param {{route: import("../core/router.js").Route}} props */
export function UpdateView({ route }) {
  const [run = "", step = "0"] = route.parts;
  const update = useResource(pathOf(["runs", run, "updates", step]));
  const at = Number(step);
  /** @param {number} to */
  const turn = (to) => to >= 0 && go(hrefOf(["update", run, String(to)]));
  useKeys({ ArrowLeft: () => turn(at - 1), ArrowRight: () => turn(at + 1) });
  const more = html`${at > 0 && html`<a class="button" href=${hrefOf(["update", run, String(at - 1)])} aria-label="Previous update">←</a>`}<a class="button" href=${hrefOf(["update", run, String(at + 1)])} aria-label="Next update">→</a>`;
  return html`<${PageHead} crumbs=${html`<a href=${hrefOf(["runs"])}>Runs</a> / <a href=${hrefOf(["run", run])}>${run}</a>`} title=${`Update ${step}`} more=${more} />
    ${!update.data && update.error instanceof ApiError && update.error.status === 404 ? html`<${Missing} run=${run} step=${at} why=${update.error.message} />` : html`<${Await} resource=${update}>${(/** @type {import("../core/types.js").UpdateDetail} */ data) => html`<${Whole} update=${data} />`}<//>`}`;
}

/** A step without an update: why there is none, and the updates beside it. @param {{run: string, step: number, why: string}} props */
function Missing({ run, step, why }) {
  const updates = useResource(pathOf(["runs", run, "updates"]));
  const steps = (updates.data?.items ?? []).map((/** @type {{step: number}} */ one) => one.step).sort((/** @type {number} */ a, /** @type {number} */ b) => a - b);
  const beside = [steps.findLast((/** @type {number} */ one) => one < step), steps.find((/** @type {number} */ one) => one > step)].filter((one) => one !== undefined);
  return html`<div class="note-box" data-missing><p>${why}.</p>
    <p class="chips" style=${{ marginTop: "12px" }}>${beside.map((one) => html`<a class="chip" key=${one} href=${hrefOf(["update", run, String(one)])}>Update ${one}</a>`)}<a class="chip" href=${hrefOf(["learning", run])}>Learning</a><a class="chip" href=${hrefOf(["trajectories"], { run })}>Trajectories</a></p></div>`;
}

/** @param {{update: import("../core/types.js").UpdateDetail}} props */
function Whole({ update }) {
  const { rollouts, excluded, groups } = update;
  const rewards = rollouts.map((one) => one.reward).filter((one) => one !== null);
  const known = rollouts.flatMap((one) => [one.policy_min, one.policy_max]).filter((one) => one !== null);
  const [lowest, highest] = known.length ? [Math.min(...known), Math.max(...known)] : [null, null];
  const changed = rollouts.filter((one) => one.reward_now !== null && one.reward_now !== one.reward).length;
  return html`<dl class="tiles"><${Tile} label="Learned from" value=${rollouts.length} note=${`rollouts, ${number(update.num_samples)} samples`} /><${Tile} label="Mean reward" value=${number(rewards.length ? rewards.reduce((all, one) => all + one, 0) / rewards.length : null)} />
      <${Tile} label="Weights" value=${`v${update.policy_version}`} note=${`learned from them at ${clock(update.trained_at)} UTC`} /><${Tile} label="Sampled by" value=${versions(lowest, highest)} note="oldest to newest version of its tokens" />
      <${Tile} label="Left out" value=${excluded.length} note=${changed ? `${changed} judged otherwise since` : ""} /></dl>
    <${Card} title="From the queue into the update" more=${html`<${Versions} rollouts=${rollouts} />`}><${Lanes} rollouts=${rollouts} /><//>
    <${Card} title="Groups" flush><table class="table"><thead><tr><th scope="col">Group</th><th scope="col" class="right">Rollouts</th><th scope="col" class="right">Mean reward</th><th scope="col">Teaches</th></tr></thead><tbody>${groups.map((one) => html`<tr key=${one.group_id}><td><a href=${hrefOf(["group", one.group_id])}>${shortId(one.group_id, 30)}</a></td><td class="right">${one.num}</td><td class="right">${number(one.reward_mean)}</td><td>${one.is_zero_std ? html`<${Badge} status="nothing: all rewards are equal" tone="warn" />` : html`<${Badge} status="yes" tone="good" />`}</td></tr>`)}</tbody></table><//>
    <${Card} title="Left out" flush more="never in silence">${excluded.length ? html`<table class="table"><thead><tr><th scope="col">Trajectory</th><th scope="col">Kind</th><th scope="col">Why</th></tr></thead><tbody>${excluded.map((one, key) => html`<tr key=${key}><td><a class="mono" href=${hrefOf(["trajectory", one.trajectory_id])}>${shortId(one.trajectory_id, 22)}</a></td><td><${Badge} status=${one.kind.replaceAll("_", " ")} tone="warn" /></td><td>${one.reason}</td></tr>`)}</tbody></table>` : html`<${Empty}>Nothing was left out.<//>`}<//>`;
}

/** @param {{rollouts: Lane[]}} props */
function Versions({ rollouts }) {
  const known = [...new Set(rollouts.map((one) => one.policy_max).filter((one) => one !== null))].sort((a, b) => a - b).slice(0, 8);
  return html`<span class="legend">${known.map((one) => html`<span key=${one}><i class="swatch" style=${{ background: `var(${hueOfVersion(one)})` }}></i>sampled by v${one}</span>`)}</span>`;
}

/** @param {{rollouts: Lane[]}} props */
function Lanes({ rollouts }) {
  const lanes = rollouts.map((one) => ({ one, phases: phasesOf(one) })).sort((a, b) => (a.one.group_id < b.one.group_id ? -1 : a.one.group_id > b.one.group_id ? 1 : (a.phases[0]?.from ?? 0) - (b.phases[0]?.from ?? 0)));
  const times = lanes.flatMap(({ phases }) => phases.flatMap((phase) => [phase.from, phase.to]));
  if (!times.length) return html`<p class="small quiet">The times of these rollouts are not known.</p>`;
  const [start, end] = [Math.min(...times), Math.max(...times)];
  const x = (/** @type {number} */ at) => LEFT + ((at - start) / Math.max(end - start, 0.001)) * (WIDTH - LEFT - 70);
  const height = lanes.length * LANE + 24;
  return html`<div class="scroll-x" tabindex="0"><svg class="timeline" viewBox=${`0 0 ${WIDTH} ${height}`} role="group" aria-label=${`${lanes.length} rollouts from the queue into the update, over ${seconds(end - start)}`}>
    ${ticks(0, end - start).map((mark) => html`<g key=${mark}><line class="grid" x1=${x(start + mark)} x2=${x(start + mark)} y1="0" y2=${height - 18} /><text x=${x(start + mark)} y=${height - 5} text-anchor="middle">${seconds(mark)}</text></g>`)}
    ${lanes.map(({ one, phases }, lane) => html`<a key=${one.trajectory_id} href=${hrefOf(["trajectory", one.trajectory_id])} aria-label=${toldOf(one)}><title>${toldOf(one)}</title>
      ${lanes[lane - 1]?.one.group_id !== one.group_id && html`<text x="0" y=${lane * LANE + 12}>${shortId(one.task_id ?? one.group_id, 20)}</text>`}
      ${phases.map(({ name, from, to }) => html`<rect key=${name} x=${x(from)} y=${lane * LANE + 2 + (11 - (LOOKS[name]?.height ?? 0)) / 2} width=${Math.max(1, x(to) - x(from))} height=${LOOKS[name]?.height} rx="2" fill=${`var(${hueOfVersion(one.policy_max)})`} opacity=${LOOKS[name]?.opacity} />`)}
      <text x=${WIDTH} y=${lane * LANE + 12} text-anchor="end">${signed(one.advantage)}</text></a>`)}</svg></div>
    <div class="legend"><span>thin: ${LOOKS.queue?.told}, ${LOOKS.wait?.told}</span><span>full: run</span><span>paler: grade, seal</span><span>right: advantage</span></div>`;
}

/** @param {Lane} one */
const toldOf = (one) => `${one.trajectory_id}: ${versions(one.policy_min, one.policy_max)}, reward ${number(one.reward)}, advantage ${signed(one.advantage)}`;
