// One trajectory: what the policy saw and said, what answered, how it was judged, and which update learned from it.
import { html, useEffect, useMemo, useState } from "../core/ui.js";
import { changed, go, hrefOf } from "../core/router.js";
import { get, pathOf, useResource } from "../core/api.js";
import { useKeys } from "../core/keys.js";
import { Await, Badge, Card, PageHead, Tile } from "../parts/basic.js";
import { LabelChip } from "../parts/label.js";
import { OrderButton } from "../parts/order.js";
import { Timeline } from "../parts/timeline.js";
import { Said, StepCard } from "../parts/step_card.js";
import { ForksTab } from "./forks.js";
import { TokensTab } from "./tokens.js";
import { contentText, number, readable, seconds, shortId, signed, versions, epoch } from "../pure/format.js";

/** @typedef {import("../core/types.js").Trajectory} Trajectory */
/** Steps in the first frame, counted from the one that is asked for; the others follow when it is on the screen. */
const FIRST_STEPS = 8;
const LABEL_FIELDS = [{ name: "name", label: "Name" }, { name: "value", label: "Value" }, { name: "comment", label: "Comment", isOptional: true }];

/** @param {{route: import("../core/router.js").Route}} props */
export function TrajectoryView({ route }) {
  const id = route.parts[0] ?? "";
  const found = useResource(pathOf(["trajectories", id]));
  return html`<${Await} resource=${found}>${(/** @type {Trajectory} */ data) => html`<${Whole} route=${route} data=${data} />`}<//>`;
}

/** @param {{route: import("../core/router.js").Route, data: Trajectory}} props */
function Whole({ route, data }) {
  const { row, steps } = data;
  const { query } = route;
  const tab = query.get("tab") ?? "steps";
  const at = Number(query.get("step") ?? -1);
  const ids = useResultSet(query.get("of"), data);
  const position = ids.indexOf(row.trajectory_id);
  /** @param {Record<string, string | number | null>} changes */
  const to = (changes) => hrefOf(["trajectory", row.trajectory_id], changed(query, changes));
  /** @param {number} by */
  const turn = (by) => ids[position + by] && go(hrefOf(["trajectory", ids[position + by] ?? ""], changed(query, { step: null })));
  /** @param {number} by */
  const walk = (by) => go(to({ step: Math.min(steps.length - 1, Math.max(0, at + by)) }), { replace: true });
  useKeys({ ArrowLeft: () => turn(-1), ArrowRight: () => turn(1), j: () => walk(1), k: () => walk(-1), t: () => go(to({ tab: tab === "tokens" ? null : "tokens" })), f: () => go(to({ tab: tab === "forks" ? null : "forks" })) });
  return html`<${Head} data=${data} position=${position} ids=${ids} turn=${turn} />
    <nav class="tabs" aria-label="Parts of the trajectory">${[["steps", "Steps"], ["tokens", "Tokens"], ["forks", "Forks"]].map(([name, title]) => html`<a key=${name} href=${to({ tab: name === "steps" ? null : name ?? null })} aria-current=${tab === name ? "page" : undefined}>${title}</a>`)}</nav>
    ${tab === "forks" ? html`<${ForksTab} data=${data} at=${at} to=${to} />` : tab === "tokens" ? html`<${TokensTab} data=${data} route=${route} to=${to} />` : html`<${StepsTab} data=${data} at=${at} to=${to} query=${query} />`}`;
}

/** Ids that ← and → walk: the query the reader came from, or the trajectory's group. @param {string | null} of @param {Trajectory} data */
function useResultSet(of, data) {
  const [found, setFound] = useState(/** @type {string[]} */ ([]));
  useEffect(() => {
    if (of !== null) get(pathOf(["query"], new URLSearchParams(`${of}&limit=500`))).then((page) => setFound(page.items.map((/** @type {any} */ row) => row.trajectory_id)), () => setFound([]));
  }, [of]);
  return found.includes(data.row.trajectory_id) ? found : data.siblings.trajectory_ids;
}

/** @param {{data: Trajectory, position: number, ids: string[], turn: (by: number) => void}} props */
function Head({ data, position, ids, turn }) {
  const { row, updates, siblings } = data;
  const spent = (epoch(row.ended_at) ?? NaN) - (epoch(row.started_at) ?? NaN);
  const advantage = updates.find((one) => one.advantage_mean !== null)?.advantage_mean ?? null;
  const more = html`${position >= 0 && html`<button class="button" onClick=${() => turn(-1)} disabled=${position <= 0} aria-label="Previous trajectory">←</button><span class="small quiet num nowrap">${position + 1}/${ids.length}</span>
    <button class="button" onClick=${() => turn(1)} disabled=${position + 1 >= ids.length} aria-label="Next trajectory">→</button>`}`;
  return html`<${PageHead} title=${shortId(row.trajectory_id, 30)} more=${more} crumbs=${html`<a href=${hrefOf(["run", row.run])}>${row.run}</a> / <a href=${hrefOf(["trajectories"], { run: row.run, task: row.task_id })}>${row.task_id}</a>${siblings.group_id && html` / <a href=${hrefOf(["group", siblings.group_id])}>group</a>`}`}>
      <span class="chips"><${Badge} status=${row.status} />${row.cause && html`<${Badge} status=${`cause: ${row.cause}`} tone="warn" />`}${data.is_cooled && html`<${Badge} status="bucket alone" tone="warn" />`}${!row.accepted && html`<${Badge} status="not accepted" tone="warn" />`}${row.findings.map((one) => html`<${Badge} key=${one} status=${one.replaceAll("_", " ")} tone="warn" />`)}${Object.entries(row.labels).map(([name, value]) => html`<${LabelChip} key=${name} name=${name} value=${value} given=${data.given_labels} />`)}</span><//>
    <dl class="tiles">
      <${Tile} label="Reward" value=${number(data.reward)} note=${data.rewards.filter((one) => one.is_current).map((one) => `${one.name} by ${one.source}`).join(", ")} />
      <${Tile} label="Policy" value=${versions(row.policy_min, row.policy_max)} />
      <${Tile} label="Steps" value=${row.num_steps} note=${Number.isFinite(spent) ? `in ${seconds(spent)}` : "still running"} />
      <${Tile} label="Tokens" value=${number(data.num_sampled)} note=${`sampled, of ${number(data.num_given + data.num_sampled)}`} />
      <${Tile} label="Learned by" value=${updates.length ? updates.map((one) => html`<a key=${one.step} href=${hrefOf(["update", one.run, String(one.step)])}>update ${one.step} </a>`) : "none"} note=${advantage !== null ? `advantage ${signed(advantage)}` : data.exclusions[0]?.reason ?? ""} />
    </dl>
    ${data.outcome?.error && html`<p class="note-box bad">${data.outcome.error}</p>`}
    ${data.outcome?.traceback && html`<details class="fold"><summary>Traceback</summary><pre class="small" tabindex="0">${data.outcome.traceback}</pre></details>`}
    ${data.alarms.map((one) => html`<p class="note-box small" key=${one.detail}><b>${one.kind.replaceAll("_", " ")}</b>: ${one.detail}</p>`)}`;
}

/** @param {{data: Trajectory, at: number, to: (changes: any) => string, query: URLSearchParams}} props */
function StepsTab({ data, at, to, query }) {
  const hide = query.get("hide") ?? "";
  const hidden = new Set(hide.split(",").filter(Boolean));
  const [isPainted, setPainted] = useState(false);
  const shown = isPainted ? data.steps : data.steps.slice(0, Math.max(0, at) + FIRST_STEPS);
  useEffect(() => setPainted(true), []);
  useEffect(() => void (at >= 0 && document.getElementById(`step-${at}`)?.scrollIntoView({ block: "start" })), [at]);
  /** @param {string} name */
  const toggled = (name) => to({ hide: (hidden.has(name) ? [...hidden].filter((one) => one !== name) : [...hidden, name]).join(",") || null });
  const parts = ["system", "tools", "reasoning"].filter((name) => data.steps.some((step) => hasPart(step, name)));
  const isSaid = data.steps[0]?.new_messages.some((one) => contentText(one.content) === readable(data.task?.input)); // the first step shows it
  return html`<${Card} title="Time"><${Timeline} steps=${data.steps} at=${at} onPick=${(/** @type {number} */ step) => go(to({ step }), { replace: true })} /><//>
    <div class="steps"><nav class="outline" aria-label="Steps"><a href=${to({ step: null })}>Task</a>${data.steps.map((step) => html`<a key=${step.index} href=${to({ step: step.index })} aria-current=${step.index === at ? "true" : undefined}><span class="num">${step.index}</span><span class="cut">${step.agent ?? step.role}</span>${step.agent && step.role === "aux" && html`<span class="badge">aux</span>`}${step.status !== "ok" && html`<span class="badge bad">${step.status ?? "running"}</span>`}</a>`)}</nav>
      <div class="step-list">${parts.length > 0 && html`<div class="chips" role="group" aria-label="Show">${parts.map((name) => html`<a key=${name} class=${`chip ${hidden.has(name) ? "" : "on"}`} href=${toggled(name)}>${name}</a>`)}</div>`}
        ${data.task && !isSaid && html`<${Card} title="Task"><${Said} role="task" text=${readable(data.task.input)} /><//>`}
        ${shown.map((step) => html`<${OneStep} key=${step.index} data=${data} step=${step} isOn=${step.index === at} hide=${hide} href=${to({ tab: "tokens", step: step.index })} />`)}
        <${Judged} data=${data} /></div></div>`;
}

/** A step stays as it is while the reader walks through others.
 * @param {{data: Trajectory, step: import("../core/types.js").Step, isOn: boolean, hide: string, href: string}} props */
function OneStep({ data, step, isOn, hide, href }) {
  return useMemo(() => html`<${StepCard} id=${data.row.trajectory_id} step=${step} isOn=${isOn} hidden=${new Set(hide.split(","))} href=${href} order=${html`<${StepOrder} data=${data} step=${step.index} />`} />`, [data, step, isOn, hide, href]);
}

/** Whether a step has something that the reader can hide. @param {import("../core/types.js").Step} step @param {string} part */
function hasPart({ new_messages: messages, message, observations }, part) {
  if (part === "system") return messages.some((one) => one.role === "system");
  if (part === "reasoning") return Boolean(message?.reasoning ?? message?.reasoning_content);
  return observations.length > 0 || (message?.tool_calls ?? []).length > 0 || messages.some((one) => one.role === "tool");
}

/** @param {{data: Trajectory}} props */
function Judged({ data }) {
  const times = Object.entries(data.outcome?.times ?? {}).filter(([, value]) => value !== null);
  const names = [...new Set(data.rewards.map((one) => one.name))];
  const fields = [{ name: "score", label: "Score; empty keeps the current one", kind: "number", isOptional: true }, { name: "name", label: "Name of the reward", value: names[0] ?? "reward" }, { name: "comment", label: "Comment", isOptional: true }];
  const path = ["trajectories", data.row.trajectory_id, "labels"];
  return html`<${Card} title="How it was judged" more=${html`<span class="chips"><${OrderButton} label="Label" title=${`Label ${shortId(data.row.trajectory_id, 30)}`} verb="Give it" path=${path} fields=${LABEL_FIELDS} told="Your label supersedes the current one of its name, also that of its task. Earlier ones stay readable." />
    <${OrderButton} label="Reward" title=${`Judge ${shortId(data.row.trajectory_id, 30)}`} verb="Give it" path=${["trajectories", data.row.trajectory_id, "rewards"]} fields=${fields} told=${judging(data)} /></span>`}>
    ${data.rewards.length ? html`<table class="table"><thead><tr><th scope="col">Reward</th><th scope="col" class="right">Score</th><th scope="col">By</th><th scope="col">Status</th></tr></thead><tbody>${data.rewards.map((one, key) => html`<tr key=${key} class=${one.is_current ? "" : "quiet"}><td class="wrap">${one.name}${one.scope !== "rollout" && html` <span class="quiet">of ${one.scope} ${one.step ?? one.agent}</span>`}${one.judge && html` <span class="badge" title="The judged code shared an interpreter with its judge, and could force this">judge: ${one.judge}</span>`}${one.comment && html`<br /><span class="quiet">${one.comment}</span>`}</td><td class="right">${number(one.score)}</td><td class="wrap">${one.source}</td><td><span class="chips"><${Badge} status=${one.void ? "void" : one.is_current ? one.status : "superseded"} />${one.is_current && !one.void && one.score !== null && html`<${Withdrawal} data=${data} reward=${one} />`}</span></td></tr>`)}</tbody></table>` : html`<p class="small quiet">No reward was given.</p>`}
    ${data.given_labels.length > 0 && html`<table class="table" data-labels style=${{ marginTop: "12px" }}><thead><tr><th scope="col">Label</th><th scope="col">Value</th><th scope="col">By</th><th scope="col">Status</th></tr></thead><tbody>${data.given_labels.map((one) => html`<tr key=${one.label_id} class=${one.is_current ? "" : "quiet"}><td>${one.name}${one.comment && html`<br /><span class="quiet">${one.comment}</span>`}</td><td>${one.value ?? "withdrawn"}</td><td>${one.source}</td><td><span class="chips"><${Badge} status=${one.is_current ? "current" : "superseded"} />
      ${one.is_current && one.value !== null && html`<${OrderButton} label="Withdraw" name=${`withdraw ${one.name}`} title=${`Withdraw the label ${one.name}?`} verb="Withdraw" path=${path} body=${{ name: one.name, value: null }} told=${`No query finds it by ${one.name}=${one.value} any more. What was given stays readable.`} />`}</span></td></tr>`)}</tbody></table>`}
    ${times.length > 0 && html`<p class="facts" style=${{ marginTop: "12px" }}>${times.map(([name, value]) => html`<span key=${name}>${name.replace("_seconds", "")} <b>${seconds(value)}</b></span>`)}</p>`}<//>`;
}

/** Takes back a judgement, so that none of its name counts. @param {{data: Trajectory, reward: import("../core/types.js").Reward}} props */
function Withdrawal({ data, reward }) {
  const { name, score, step, agent } = reward;
  const of_what = step !== null ? ` of step ${step}` : agent !== null ? ` of agent ${agent}` : "";
  return html`<${OrderButton} label="Withdraw" name=${`withdraw ${name}${of_what}`} title=${`Withdraw the reward ${name}${of_what}?`} verb="Withdraw" path=${["trajectories", data.row.trajectory_id, "rewards"]} body=${{ name, score: null, ...(step !== null && { step }), ...(agent !== null && { agent }) }}
    fields=${[{ name: "comment", label: "Why", isOptional: true }]} told=${`${number(score)} by ${reward.source} counts no more, and nothing takes its place. It stays readable.${learned(data)}`} />`;
}

/** @param {Trajectory} data */
const learned = ({ updates }) => (updates[0] ? ` Update ${updates[0].step} has learned from it already, and does not change.` : "");

/** @param {Trajectory} data */
function judging(data) {
  return `Your judgement supersedes the current one of its name, which stays readable. The reward is ${number(data.reward)} now; what trains later learns from yours.${learned(data)}`;
}

/** Judges one step. @param {{data: Trajectory, step: number}} props */
function StepOrder({ data, step }) {
  const current = data.rewards.find((one) => one.is_current && one.scope === "step" && one.step === step);
  const fields = [{ name: "score", label: "Score", kind: "number", value: current?.score }, { name: "name", label: "Name of the reward", value: current?.name ?? "reward" }, { name: "comment", label: "Comment", isOptional: true }];
  return html`<${OrderButton} label="Judge" name=${`judge step ${step}`} title=${`Judge step ${step}`} verb="Give it" path=${["trajectories", data.row.trajectory_id, "rewards"]} body=${{ step }} fields=${fields} told=${`Your judgement is of this step alone${current ? `, and supersedes ${number(current.score)} by ${current.source}, which stays readable` : ""}. The reward of the rollout stays ${number(data.reward)}.${learned(data)}`} />`;
}
