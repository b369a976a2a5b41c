// Is the run all right? One sentence first; then how it learns, what fails, and where the time goes.
import { html, useMemo } from "../core/ui.js";
import { go, hrefOf } from "../core/router.js";
import { pathOf, useResource } from "../core/api.js";
import { Await, Card, Empty, Failure, PageHead, Tile } from "../parts/basic.js";
import { BesideChoice, Compared } from "../parts/beside.js";
import { Chart, Legend } from "../parts/chart.js";
import { TrajectoryTable } from "../parts/trajectory_table.js";
import { placeOf } from "../pure/health.js";
import { sharesOf } from "../pure/learning.js";
import { overlaid } from "../pure/overlay.js";
import { moment, number, percent, percentsOf, seconds, versions } from "../pure/format.js";

const SIGNS = { ok: "✓", warn: "!", stop: "✕", unknown: "?" };
/** @type {[string, string, string][]} */
const SPENT = [["wait_seconds", "waiting for rollouts", "--hue-5"], ["update_seconds", "update", "--hue-0"], ["switch_seconds", "new weights", "--hue-1"], ["evaluation_seconds", "evaluation", "--hue-2"], ["checkpoint_seconds", "checkpoint", "--hue-3"]];

/** @param {{route: import("../core/router.js").Route}} props */
export function RunView({ route }) {
  const name = route.parts[0] ?? "";
  const run = useResource(pathOf(["runs", name]));
  const updates = useResource(pathOf(["runs", name, "updates"]));
  const beside = route.query.get("with");
  const other = useResource(beside === null ? null : pathOf(["runs", beside]));
  return html`<${PageHead} crumbs=${html`<a href=${hrefOf(["runs"])}>Runs</a>`} title=${name} more=${html`<${BesideChoice} route=${route} /><a class="button" href=${hrefOf(["learning", name], { with: beside })}>Learning</a><a class="button" href=${hrefOf(["trajectories"], { run: name })}>Trajectories</a>`} />
    <${Await} resource=${run}>${(/** @type {import("../core/types.js").Run} */ data) => html`<${Whole} run=${data} updates=${updates} other=${other.data} />`}<//>
    ${other.error && html`<${Failure} error=${other.error} />`}`;
}

/** @param {{run: import("../core/types.js").Run, updates: {data: any, error: any}, other: import("../core/types.js").Run | null}} props */
function Whole({ run, updates, other }) {
  const { counts, steps, failures } = run;
  const last = steps.step.length - 1;
  return html`
    <${HealthBox} run=${run.run} health=${run.health} />
    ${run.num_cooled > 0 && html`<p class="note-box" data-cooled>${cooledOf(run)} 'agent-layer store reindex' brings ${run.is_cooled ? "it" : "them"} back to Redis.</p>`}
    ${run.held_out && html`<p class=${run.held_out.level === "warn" ? "note-box" : "small quiet"} data-held-out>${run.held_out.sentence}</p>`}
    <dl class="tiles">
      <${Tile} label="Success" value=${percent(counts.success_rate)} note="of accepted trajectories" />
      <${Tile} label="Mean reward" value=${number(counts.mean_reward)} />
      <${Tile} label="Trajectories" value=${number(counts.trajectories)} note=${`${number(counts.accepted)} accepted`} />
      <${Tile} label="Policy" value=${run.newest_version ? `v${run.newest_version.number}` : "–"} note=${last >= 0 ? `step ${steps.step[last]}` : ""} />
      <${Tile} label="Staleness" value=${number(steps.numbers.staleness_mean?.[last])} note="versions behind, last step" />
    </dl>
    <div class="answer">${other && html`<${Compared} run=${run} other=${other} />`}</div>
    <div class="two">
      ${other ? html`<${Both} run=${run} other=${other} />` : html`<${Learning} run=${run.run} steps=${steps} isEvaluation=${run.is_evaluation} />`}
      <${Card} title="What waits for what"><${Spent} steps=${steps} /><${Waits} run=${run.run} /><//>
    </div>
    ${failures.length > 0 && html`<${Failed} run=${run.run} rows=${failures} />`}
    <${Card} title="Updates" flush more="what each step of training learned from"><${Await} resource=${updates}>${(/** @type {any} */ data) => html`<${Updates} run=${run.run} items=${data.items} steps=${steps} isEvaluation=${run.is_evaluation} />`}<//><//>
    ${!failures.length && html`<${Failed} run=${run.run} rows=${failures} />`}`;
}

/** @param {{run: string, rows: import("../core/types.js").Row[]}} props */
const Failed = ({ run, rows }) => html`<${Card} title="Newest failures" flush more=${html`<a href=${hrefOf(["failures"], { run })}>all failures</a>`}>
  ${rows.length ? html`<${TrajectoryTable} rows=${rows} columns=${["trajectory", "task", "status", "cause", "reward", "policy", "findings", "started"]} isBound=${false} hrefOfRow=${(/** @type {any} */ row) => hrefOf(["trajectory", row.trajectory_id])} />` : html`<${Empty}>No trajectory failed.<//>`}<//>`;

/** What of a run only the bucket has. @param {import("../core/types.js").Run} run */
function cooledOf({ is_cooled: isCooled, num_cooled: num }) {
  if (isCooled) return "Only the bucket has this run: Redis lost it, or it was cooled. It has no queue, no dead letters, no engines, and cannot be judged.";
  return `${number(num)} ${num === 1 ? "trajectory" : "trajectories"} of this run ${num === 1 ? "is" : "are"} in the bucket alone, and not in these numbers.`;
}

/** @param {{run: string, health: import("../core/types.js").Health}} props */
function HealthBox({ run, health }) {
  return html`<section class=${`health ${health.level}`} aria-label="Health"><span class="sign" aria-hidden="true">${SIGNS[health.level]}</span>
    <p class="sentence"><span data-health>${health.sentence}</span> ${health.findings[0] && html`<${Seen} run=${run} step=${health.step} finding=${health.findings[0]} />`}</p>
    ${(health.findings.length > 0 || health.alarms.length > 0) && html`<div class="rest">
      <ul>${health.findings.map((one, at) => html`<li key=${one.name}>${at > 0 && html`<b>${one.title || one.name.replaceAll("_", " ")}${one.subject && `: ${one.subject}`}</b>: ${one.sentence}. `}${one.advice} <span class="mono quiet">${one.name}</span> ${at > 0 && html`<${Seen} run=${run} step=${health.step} finding=${one} />`}</li>`)}</ul>
      <div class="chips">${health.alarms.map((one) => html`<a class="chip" key=${one.kind} href=${hrefOf(["trajectories"], { run, ...one.filters })} title=${one.sentence}><b class="num">${one.num}</b>${one.kind.replaceAll("_", " ")}</a>`)}</div></div>`}
  </section>`;
}

/** Where a finding can be seen. @param {{run: string, step: number | null, finding: import("../core/types.js").Finding}} props */
function Seen({ run, step, finding }) {
  const place = placeOf(run, step, finding);
  return place && html`<a class="nowrap" data-seen=${finding.name} href=${hrefOf(place.parts, place.query)}>${place.title} →</a>`;
}

/** @param {{run: string, steps: import("../core/types.js").Progress, isEvaluation: boolean}} props */
function Learning({ run, steps, isEvaluation }) {
  const series = useMemo(() => {
    const rates = new Map(steps.evaluations.map((one) => [one.step, one.pass_rate]));
    const measured = [{ ...learned(steps), hue: "--hue-0", fill: true }];
    if (rates.size) measured.push(/** @type {any} */ ({ label: "evaluation", values: steps.step.map((step) => rates.get(step) ?? null), hue: "--hue-4", points: true }));
    return measured;
  }, [steps]);
  const { label, values } = learned(steps);
  const last = values.findLast((value) => value !== null);
  if (!steps.step.length) return html`<${Card} title="Success"><${Empty}>${isEvaluation ? "An evaluation makes no updates: its success is above, by task in the trajectories." : "No update yet."}<//><//>`;
  return html`<${Card} title=${`${label} by training step`} more="click a point: the update">
    <${Chart} x=${steps.step} series=${series} range=${label === "Success" ? [0, 1] : undefined} height=${236} format=${label === "Success" ? percent : number} label=${`${label} by training step, ${steps.step.length} steps, last ${number(last)}`}
      onPick=${(/** @type {number} */ at) => go(hrefOf(["update", run, String(steps.step[at])]))} /><${Legend} series=${series} /><//>`;
}

/** Success of two runs by training step. @param {{run: import("../core/types.js").Run, other: import("../core/types.js").Run}} props */
function Both({ run, other }) {
  const isSuccess = [run, other].every((one) => learned(one.steps).label === "Success");
  const { x, series } = useMemo(() => {
    const name = isSuccess ? "success" : "reward_mean";
    const { x: steps, curves, others } = overlaid(run.steps.step, [run.steps.numbers[name] ?? []], other.steps.step, [other.steps.numbers[name] ?? []]);
    return { x: steps, series: [{ label: run.run, values: curves[0] ?? [], hue: "--hue-0", isSpanned: true }, { label: other.run, values: others[0] ?? [], hue: "--hue-4", dash: true, isSpanned: true }] };
  }, [run, other]);
  const title = isSuccess ? "Success" : "Mean reward";
  if (!x.length) return html`<${Card} title=${title}><${Empty}>Neither run has an update yet.<//><//>`;
  const last = series.map((one) => `${one.label} last ${number(one.values.findLast((value) => value !== null))}`).join(", ");
  return html`<${Card} title=${`${title} by training step`} more=${`click a point: the update of ${run.run}`}>
    <${Chart} x=${x} series=${series} range=${isSuccess ? [0, 1] : undefined} height=${236} format=${isSuccess ? percent : number} label=${`${title} by training step: ${last}`}
      onPick=${(/** @type {number} */ at) => go(hrefOf(["update", run.run, String(x[at])]))} /><${Legend} series=${series} /><//>`;
}

/** Success of each step; where its report is not on this machine, the mean reward. @param {import("../core/types.js").Progress} steps */
function learned({ numbers }) {
  const success = numbers.success ?? [];
  return success.some((one) => one !== null) ? { label: "Success", values: success } : { label: "Mean reward", values: numbers.reward_mean ?? [] };
}

/** @param {{steps: import("../core/types.js").Progress}} props */
function Spent({ steps }) {
  const series = useMemo(() => {
    const shares = sharesOf(steps.numbers, SPENT.map(([name]) => name));
    return SPENT.map(([, label, hue], at) => ({ label, hue, values: shares[at] ?? [] })).filter((one) => one.values.some((share) => share));
  }, [steps]);
  const sums = SPENT.map(([name, label, hue]) => ({ label, hue, sum: (steps.numbers[name] ?? []).slice(-10).reduce((/** @type {number} */ all, one) => all + (one ?? 0), 0) })).filter((one) => one.sum > 0);
  const total = sums.reduce((all, one) => all + one.sum, 0);
  if (!total) return html`<p class="small quiet">How long steps take is in the report of the trainer, which is not on this machine.</p>`;
  const shares = percentsOf(sums.map((one) => one.sum));
  const told = sums.map((one, at) => ({ hue: one.hue, label: `${one.label} ${shares[at]}` }));
  const [num, ends] = [Math.min(10, steps.step.length), steps.ended_at.slice(-10)];
  const apart = ends.length > 1 ? ((ends.at(-1) ?? 0) - (ends[0] ?? 0)) / (ends.length - 1) : null;
  return html`<h3 class="small">A training step, ${seconds(total / num)} in the mean of the last ${num}${apart !== null && apart - total / num > 0.05 * apart && `, ${seconds(apart)} from one to the next`}</h3>
    <div class="spend" aria-hidden="true">${sums.map((one) => html`<i key=${one.label} style=${{ flexGrow: one.sum, background: `var(${one.hue})` }}></i>`)}</div><${Legend} series=${told} />
    ${series.length > 0 && steps.step.length > 1 && html`<h3 class="small">Share of each step</h3><${Chart} x=${steps.step} series=${series} height=${120} range=${[0, 1]} format=${percent} label=${`share of ${series.map((one) => one.label).join(", ")} in ${steps.step.length} steps`} />`}`;
}

/** What waits in the queue now, and for whom. @param {{run: string}} props */
function Waits({ run }) {
  const queue = useResource("queue");
  const own = /** @type {import("../core/types.js").Queue | null} */ (queue.data)?.runs.find((one) => one.run === run);
  if (!own) return html`<p class="small quiet">Nothing of this run is in the queue.</p>`;
  const slots = own.quota === null ? "" : ` of ${own.quota} allowed`;
  return html`<p class="small" data-waits><b>${number(own.num_queued)}</b> rollouts wait for a worker, <b>${number(own.num_leased)}</b> run${slots}, <b>${number(own.num_delayed)}</b> are in back-off, <b>${number(own.num_paused)}</b> paused. <a href=${hrefOf(["fleet"])}>Fleet</a></p>
    ${own.paused !== null && html`<p class="note-box small">The run is paused${own.paused && `: ${own.paused}`}.</p>`}`;
}

/** Updates, newest first; from the oldest version that sampled their tokens to the one that learned.
 * @param {{run: string, items: import("../core/types.js").UpdateSummary[], steps: import("../core/types.js").Progress, isEvaluation: boolean}} props */
function Updates({ run, items, steps, isEvaluation }) {
  if (!items.length) return html`<${Empty}>${isEvaluation ? "An evaluation makes no updates." : "No update yet."}<//>`;
  const behind = new Map(steps.step.map((step, at) => [step, steps.numbers.staleness_max?.[at] ?? 0]));
  return html`<table class="table"><thead><tr><th scope="col">Step</th><th scope="col">Trained</th><th scope="col" class="right">Policy</th><th scope="col" class="right wide-only">Rollouts</th><th scope="col" class="right wide-only">Samples</th><th scope="col" class="right">Mean reward</th></tr></thead>
    <tbody>${[...items].sort((a, b) => b.step - a.step).slice(0, 12).map((one) => html`<tr key=${one.step}><td class="nowrap"><a href=${hrefOf(["update", run, String(one.step)])}>Update ${one.step}</a></td><td class="nowrap" title=${moment(one.trained_at)}><span class="wide-only">${moment(one.trained_at)}</span><span class="narrow-only">${moment(one.trained_at).slice(5, 16)}</span></td><td class="right nowrap">${versions(one.policy_version - (behind.get(one.step) ?? 0), one.policy_version)}</td>
      <td class="right wide-only">${one.num_rollouts}</td><td class="right wide-only">${one.num_samples}</td><td class="right">${number(one.reward_mean)}</td></tr>`)}</tbody></table>`;
}
