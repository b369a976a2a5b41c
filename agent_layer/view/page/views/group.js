// The rollouts of one task that count together, side by side: what each got, and where they part.
import { html, useEffect, useState } from "../core/ui.js";
import { hrefOf } from "../core/router.js";
import { get, pathOf, useResource } from "../core/api.js";
import { Await, Badge, Bar, MiddleBar, PageHead, Tile } from "../parts/basic.js";
import { contentText, number, percent, readable, seconds, secondsBetween, shortId, signed, versions, withoutScheme } from "../pure/format.js";

/** @typedef {import("../core/types.js").Trajectory} Trajectory */
const MOST_SHOWN = 16;

/** @param {{route: import("../core/router.js").Route}} props */
export function GroupView({ route }) {
  const id = route.parts[0] ?? "";
  const group = useResource(pathOf(["groups", id]));
  return html`<${Await} resource=${group}>${(/** @type {import("../core/types.js").Group} */ data) => html`<${Whole} group=${data} />`}<//>`;
}

/** @param {{group: import("../core/types.js").Group}} props */
function Whole({ group }) {
  const { members } = group;
  const shown = members.slice(0, MOST_SHOWN);
  const whole = useWhole(shown.map((one) => one.row.trajectory_id));
  const most = { reward: largest(members.map((one) => one.reward)), advantage: largest(members.map((one) => one.advantage)), seconds: largest(members.map(tookOf)), tokens: largest(members.map((one) => one.num_sampled)) };
  const updates = [...new Set(members.map((one) => one.update).filter((one) => one !== null))];
  const kept = members.filter((one) => one.kind === "kept");
  return html`<${PageHead} title=${`Group ${shortId(group.group_id, 40)}`} crumbs=${html`<a href=${hrefOf(["run", group.run ?? ""])}>${group.run}</a> / <a href=${hrefOf(["trajectories"], { run: group.run, task: group.task_id })}>${group.task_id}</a>`}
      more=${updates.map((step) => html`<a class="button" key=${step} href=${hrefOf(["update", group.run ?? "", String(step)])}>Update ${step}</a>`)}><${Badge} status=${group.is_closed ? "closed" : "open"} tone=${group.is_closed ? "good" : "accent"} /><//>
    ${group.is_zero_std && html`<p class="note-box small"><b>All rewards are equal</b>: this group has no advantage and teaches nothing by itself.</p>`}
    <dl class="tiles"><${Tile} label="Mean reward" value=${number(group.reward_mean)} /><${Tile} label="Spread" value=${number(group.reward_std)} note="standard deviation" />
      <${Tile} label="Kept" value=${`${kept.length} of ${members.length}`} note=${`${number(group.num_surplus)} surplus`} /><${Tile} label="Succeeded" value=${percent(kept.length ? kept.filter((one) => (one.reward ?? 0) > 0).length / kept.length : null)} />
      <${Tile} label="Kept ones ran" value=${seconds(group.kept_seconds ?? meanOf(kept.map(tookOf)))} note=${group.num_surplus ? `the surplus ${seconds(group.surplus_seconds)}` : "in the mean"} /></dl>
    <div class="siblings" tabindex="0" role="region" aria-label="Siblings side by side">${shown.map((member) => html`<${Sibling} key=${member.row.trajectory_id} member=${member} against=${shown[0] === member ? null : shown[0]?.row.trajectory_id ?? null} most=${most} trajectory=${whole.get(member.row.trajectory_id)} />`)}</div>`;
}

/** Seconds that a member ran; where no phases are recorded, from its start to its end. @param {import("../core/types.js").Member} member */
const tookOf = ({ run_seconds: ran, row }) => ran ?? secondsBetween(row.started_at, row.ended_at);

/** Mean of what is known. @param {(number | null)[]} values */
function meanOf(values) {
  const known = values.filter((one) => one !== null);
  return known.length ? known.reduce((all, one) => all + one, 0) / known.length : null;
}

/** @param {(number | null)[]} values */
const largest = (values) => Math.max(1e-9, ...values.map((one) => Math.abs(one ?? 0)));

/** Load the steps of all siblings, each as it comes. @param {string[]} ids @returns {Map<string, Trajectory>} */
function useWhole(ids) {
  const [found, setFound] = useState(/** @type {Map<string, Trajectory>} */ (new Map()));
  useEffect(() => {
    const abort = new AbortController();
    for (const id of ids) get(pathOf(["trajectories", id]), abort.signal).then((/** @type {Trajectory} */ one) => setFound((old) => new Map(old).set(id, one)), () => {});
    return () => abort.abort();
  }, [ids.join()]);
  return found;
}

/** @param {{member: import("../core/types.js").Member, against: string | null, most: Record<string, number>, trajectory: Trajectory | undefined}} props */
function Sibling({ member, against, most, trajectory }) {
  const { row } = member;
  const split = trajectory ? stepAt(trajectory.steps, member.first_divergence) : null;
  const share = (/** @type {number | null} */ value, /** @type {string} */ name) => (value === null ? null : value / (most[name] ?? 1));
  return html`<section class=${`card sibling ${member.kind}`} aria-label=${`Member ${member.member}`}>
    <div class="head"><h2><a href=${hrefOf(["trajectory", row.trajectory_id])}>Member ${member.member}</a></h2><${Badge} status=${member.kind} />${member.damaged && html`<${Badge} status="damaged" tone="bad" />`}<span class="more small nowrap">${against && html`<a href=${hrefOf(["diff", against, row.trajectory_id])} aria-label=${`Where member ${member.member} parts from the first`}>diff</a>`}</span></div>
    <div class="body"><div>
      <p class="facts"><span>policy <b>${versions(row.policy_min, row.policy_max)}</b></span>${row.engines.length > 0 && html`<span class="cut" title=${row.engines.join(", ")}>engine <b>${row.engines.map(withoutScheme).join(", ")}</b></span>`}</p>
      <p class="measure"><span>reward</span><${Bar} share=${share(member.reward, "reward")} hue="--hue-2" /><b>${number(member.reward)}</b></p>
      <p class="measure"><span>advantage</span><${MiddleBar} share=${share(member.advantage, "advantage")} /><b>${signed(member.advantage)}</b></p>
      <p class="measure"><span>took</span><${Bar} share=${share(tookOf(member), "seconds")} hue="--hue-5" /><b>${seconds(tookOf(member))}</b></p>
      <p class="measure"><span>sampled</span><${Bar} share=${share(member.num_sampled, "tokens")} hue="--hue-3" /><b>${number(member.num_sampled)}</b></p></div>
      <div class="turns">${trajectory ? trajectory.steps.map((step) => html`
        ${step.new_messages.filter((one) => one.role !== "system" && one.role !== "assistant").map((one, key) => html`<p class="turn seen" key=${key}>${contentText(one.content).slice(0, 400)}</p>`)}
        <p class=${`turn ${step.index === split ? "split" : ""}`} key=${step.index}>${saidOf(step)}</p>`) : member.damaged ? html`<p class="note-box bad small">${member.damaged}</p>` : html`<div class="loading"></div>`}</div></div></section>`;
}

/** @param {import("../core/types.js").Step} step */
function saidOf(step) {
  const calls = (step.message?.tool_calls ?? []).map((/** @type {any} */ call) => `${readable((call.function ?? call).name)}(${readable((call.function ?? call).arguments)})`);
  return [contentText(step.message?.content), ...calls].filter(Boolean).join("\n").slice(0, 400) || step.error || "(no answer)";
}

/** The step that laid down a position of the whole trajectory. @param {import("../core/types.js").Step[]} steps @param {number | null} position */
function stepAt(steps, position) {
  let end = 0;
  for (const step of steps) {
    end += (step.num_prompt_tokens ?? 0) - (step.prefix_length ?? 0) + (step.num_response_tokens ?? 0);
    if (position !== null && position < end) return step.index;
  }
  return null;
}
