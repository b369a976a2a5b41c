// How a run learns: success and reward by task type and policy version, evaluation rounds and where they fell, staleness.
import { html, useMemo, useState } from "../core/ui.js";
import { changed, go, hrefOf } from "../core/router.js";
import { pathOf, useResource } from "../core/api.js";
import { Await, Badge, Card, Empty, Failure, PageHead } from "../parts/basic.js";
import { BesideChoice } from "../parts/beside.js";
import { Chart, Legend } from "../parts/chart.js";
import { number, percent, versions } from "../pure/format.js";
import { curvesOf } from "../pure/learning.js";
import { overlaid } from "../pure/overlay.js";

/** @typedef {import("../core/types.js").Learning} Learning */
const FIELDS = ["task_type", "env", "agent", "env_version"];
const HUES = ["--hue-0", "--hue-1", "--hue-2", "--hue-3", "--hue-4", "--hue-5"];

/** @param {{route: import("../core/router.js").Route}} props */
export function LearningView({ route }) {
  const [run = ""] = route.parts;
  const by = route.query.get("by") ?? "task_type";
  const learning = useResource(pathOf(["runs", run, "learning"], { by }));
  const beside = route.query.get("with");
  const other = useResource(beside === null ? null : pathOf(["runs", beside, "learning"], { by }));
  const progress = useResource(pathOf(["runs", run, "progress"]));
  /** @param {string} name */
  const to = (name) => hrefOf(["learning", run], changed(route.query, { by: name === "task_type" ? null : name }));
  return html`<${PageHead} title="Learning" crumbs=${html`<a href=${hrefOf(["runs"])}>Runs</a> / <a href=${hrefOf(["run", run], { with: beside })}>${run}</a>`} more=${html`<${BesideChoice} route=${route} />`}><span class="chips" role="group" aria-label="By">${FIELDS.map((name) => html`<a key=${name} class=${`chip ${by === name ? "on" : ""}`} aria-current=${by === name ? "true" : undefined} href=${to(name)}>by ${name.replace("_", " ")}</a>`)}</span><//>
    <${Await} resource=${learning}>${(/** @type {Learning} */ data) => html`<${Curves} data=${data} other=${other.data} /><${Rounds} data=${data} other=${other.data} />`}<//>
    <div class="answer">${other.error && html`<${Failure} error=${other.error} />`}</div>
    <${Await} resource=${progress}>${(/** @type {import("../core/types.js").Progress} */ data) => html`<${Staleness} run=${run} steps=${data} />`}<//>`;
}

/** @param {{data: Learning, other: Learning | null}} props */
function Curves({ data, other }) {
  const [shown, setShown] = useState("success_rate");
  const [chosen, setChosen] = useState(/** @type {number | null} */ (null));
  const { x, curves, series } = useMemo(() => bothCurves(data, other, /** @type {"success_rate" | "mean_reward"} */ (shown)), [data, other, shown]);
  const many = new Set(data.points.map((one) => one.key)).size;
  const version = chosen !== null ? x[chosen] : undefined;
  const picked = data.points.filter((one) => one.version === version);
  const choice = html`<span class="chips">${[["success_rate", "success"], ["mean_reward", "mean reward"]].map(([name, title]) => html`<button key=${name} class="chip" aria-pressed=${shown === name} onClick=${() => setShown(name ?? "")}>${title}</button>`)}</span>`;
  /** @param {number} at */
  const pick = (at) => (curves.length === 1 ? open(data.points.find((one) => one.version === x[at])) : setChosen(at));
  const lacking = data.by === "task_type" ? "a policy version" : `${data.by.replace("_", " ")} and policy version`;
  if (!x.length) return html`<${Card} title="By policy version"><${Empty}>No accepted trajectory with a reward has ${lacking}.<//><//>`;
  const unknown = data.points.filter((one) => one.version === null);
  const numUnknown = unknown.reduce((all, one) => all + one.num_rewarded, 0);
  return html`<${Card} title="By the policy version that sampled them" more=${choice}>
      <${Chart} x=${x} series=${series} height=${250} range=${shown === "success_rate" ? [0, 1] : undefined} format=${shown === "success_rate" ? percent : number} place=${(/** @type {number} */ version) => `v${version}`} onPick=${pick} label=${`${shown.replace("_", " ")} of ${many} kinds over ${x.length} policy versions`} />
      <${Legend} series=${series} />
      <p class="tiny quiet">Click a point: its trajectories.${many > curves.length ? ` The ${curves.length} most frequent of ${many} are drawn; the table has all.` : ""}</p>
      ${numUnknown > 0 && html`<p class="note-box small" data-unversioned>${number(numUnknown)} more have no policy version, since their policy sampled nothing: ${unknown.map((one, at) => html`${at > 0 && ", "}<a key=${one.key} href=${hrefOf(["trajectories"], one.filters)}>${one.key}</a> ${number(one.num_rewarded)}, success ${percent(one.success_rate)}`)}.</p>`}
      ${version !== undefined && html`<div class="chips" data-picked>${picked.map((one) => html`<a key=${one.key} class="chip" href=${hrefOf(["trajectories"], one.filters)}><b>${one.key}</b> v${one.version}: ${percent(one.success_rate)} of ${one.num_rewarded}</a>`)}</div>`}<//>
    <${Latest} data=${data} other=${other} />`;
}

/** Curves of a run, and dashed in the same colours those of another. @param {Learning} data @param {Learning | null} other @param {"success_rate" | "mean_reward"} name */
function bothCurves(data, other, name) {
  const own = curvesOf(data.points, name, HUES.length);
  const keys = new Set(own.curves.map((one) => one.key));
  const its = other ? curvesOf(other.points.filter((one) => keys.has(one.key)), name, HUES.length) : { x: [], curves: [] };
  const { x, curves, others } = overlaid(own.x, own.curves.map((one) => one.values), its.x, its.curves.map((one) => one.values));
  const hues = new Map(own.curves.map((one, at) => [one.key, HUES[at] ?? "--hue-0"]));
  const series = own.curves.map((one, at) => ({ label: one.key, values: curves[at] ?? [], hue: hues.get(one.key) ?? "--hue-0", isSpanned: other !== null, dash: false }));
  const dashed = its.curves.map((one, at) => ({ label: `${one.key} in ${other?.run} (dashed)`, values: others[at] ?? [], hue: hues.get(one.key) ?? "--hue-0", isSpanned: true, dash: true }));
  return { x, curves, series: [...series, ...dashed] };
}

/** @param {import("../core/types.js").LearningPoint | undefined} point */
const open = (point) => point && go(hrefOf(["trajectories"], point.filters));

/** First against newest version of each kind. @param {{data: Learning, other: Learning | null}} props */
function Latest({ data, other }) {
  const { points, by } = data;
  const keys = [...new Set(points.map((one) => one.key))];
  const rows = keys.map((key) => {
    const own = points.filter((one) => one.key === key && one.version !== null);
    return { key, first: own[0], last: own.at(-1), count: own.reduce((all, one) => all + one.count, 0) };
  }).filter((one) => one.first && one.last);
  return html`<${Card} title="First and newest version" flush><table class="table"><thead><tr><th scope="col">${by.replace("_", " ")}</th><th scope="col" class="right wide-only">Trajectories</th><th scope="col" class="right">Began at</th><th scope="col" class="right">Is at</th>${other && html`<th scope="col" class="right nowrap">In ${other.run}</th>`}<th scope="col" class="right wide-only">Mean reward</th><th scope="col" class="right">Change</th></tr></thead><tbody>
    ${rows.map(({ key, first, last, count }) => html`<tr key=${key}><td><a href=${hrefOf(["trajectories"], { ...last?.filters, policy: "" })}>${key}</a></td><td class="right wide-only">${number(count)}</td><td class="right nowrap">${percent(first?.success_rate)} <span class="quiet">v${first?.version}</span></td><td class="right nowrap"><a href=${hrefOf(["trajectories"], last?.filters)}>${percent(last?.success_rate)}</a> <span class="quiet">v${last?.version}</span></td>
      ${other && html`<${Newest} point=${other.points.findLast((one) => one.key === key && one.version !== null)} />`}<td class="right wide-only">${number(last?.mean_reward)}</td><td class="right"><${Change} from=${first?.success_rate ?? null} to=${last?.success_rate ?? null} /></td></tr>`)}</tbody></table><//>`;
}

/** @param {{point: import("../core/types.js").LearningPoint | undefined}} props */
const Newest = ({ point }) => html`<td class="right nowrap">${point ? html`<a href=${hrefOf(["trajectories"], point.filters)}>${percent(point.success_rate)}</a> <span class="quiet">v${point.version}</span>` : "–"}</td>`;

/** @param {{from: number | null, to: number | null}} props */
function Change({ from, to }) {
  if (from === null || to === null) return "–";
  const points = Math.round(100 * (to - from));
  return html`<${Badge} status=${`${points > 0 ? "+" : points < 0 ? "−" : ""}${Math.abs(points)} points`} tone=${points > 0 ? "good" : points < 0 ? "bad" : ""} />`;
}

/** @param {{data: Learning, other: Learning | null}} props */
function Rounds({ data, other }) {
  const { evaluations, regressions } = data;
  const its = other?.evaluations ?? [];
  const names = [...new Set(evaluations.map((one) => one.name))];
  const x = useMemo(() => [...new Set([...evaluations, ...its].map((one) => one.step))].sort((a, b) => a - b), [data, other]);
  const series = useMemo(() => names.slice(0, HUES.length).flatMap((name, at) => [{ label: name, from: evaluations, dash: false }, ...(its.length ? [{ label: `${name} in ${other?.run} (dashed)`, from: its, dash: true }] : [])]
    .map(({ label, from, dash }) => ({ label, dash, isSpanned: other !== null, hue: HUES[at] ?? "--hue-0", values: x.map((step) => from.findLast((one) => one.name === name && one.step === step)?.pass_rate ?? null) }))), [data, other]);
  if (!evaluations.length) return html`<${Card} title="Held-out rounds"><p class="small quiet">No evaluation round is in the reports of the trainer that are on this machine.</p><//>`;
  return html`<div class="halves"><${Card} title="Held-out rounds" more="pass rate by training step"><${Chart} x=${x} series=${series} height=${190} range=${[0, 1]} format=${percent} label=${`${evaluations.length} evaluation rounds of ${names.join(", ")}`} onPick=${(/** @type {number} */ at) => go(hrefOf(["update", data.run, String(x[at])]))} /><${Legend} series=${series} /><//>
    <${Card} title="Regressions" flush more="between rounds of one name">${regressions.length ? html`<table class="table"><thead><tr><th scope="col">Round</th><th scope="col">Steps</th><th scope="col" class="right">Passed</th><th scope="col">Chance?</th></tr></thead><tbody>${regressions.map((one, key) => html`<tr key=${key}><td>${one.name}</td><td><a href=${hrefOf(["update", data.run, String(one.to_step)])}>${one.from_step} → ${one.to_step}</a> <span class="quiet">${versions(one.from_version, one.to_version)}</span></td><td class="right nowrap">${percent(one.from_rate)} → ${percent(one.to_rate)}</td><td><${Badge} status=${one.is_clear ? "a clear drop" : "may be chance"} tone=${one.is_clear ? "bad" : ""} /></td></tr>`)}</tbody></table>` : html`<${Empty}>No round passed less than the one before it.<//>`}<//></div>`;
}

/** @param {{run: string, steps: import("../core/types.js").Progress}} props */
function Staleness({ run, steps }) {
  const { staleness_mean: mean = [], staleness_max: most = [] } = steps.numbers;
  const series = useMemo(() => [{ label: "mean", values: mean, hue: "--hue-0", fill: true }, { label: "oldest", values: most, hue: "--hue-1", dash: true }], [steps]);
  if (!mean.some((one) => one !== null)) return html`<${Card} title="Staleness"><p class="small quiet">How stale rollouts were is in the report of the trainer, which is not on this machine.</p><//>`;
  return html`<${Card} title="Staleness" more="versions between sampling and the update; click: the update"><${Chart} x=${steps.step} series=${series} height=${150} range=${[0, Math.max(1, ...most.map((one) => one ?? 0))]} format=${number} label=${`staleness over ${steps.step.length} steps`} onPick=${(/** @type {number} */ at) => go(hrefOf(["update", run, String(steps.step[at])]))} /><${Legend} series=${series} /><//>`;
}
