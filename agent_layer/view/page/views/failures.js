// What failed: by whose fault and with which error, counts, the newest examples, the filtered list.
import { html } from "../core/ui.js";
import { changed, hrefOf } from "../core/router.js";
import { pathOf, useResource } from "../core/api.js";
import { Await, Badge, Bar, Card, Empty, PageHead, Tile } from "../parts/basic.js";
import { DeadLetters } from "../parts/dead_letters.js";
import { TrajectoryTable } from "../parts/trajectory_table.js";
import { number, percent, shortId } from "../pure/format.js";

/** @typedef {import("../core/types.js").Failures} Failures */
/** Whose fault a cause is. @type {Record<string, string>} */
const FAULTS = { policy: "the policy's own", infra: "the infrastructure's", verifier: "the grader's", user: "the task's or agent's code" };

/** @param {{route: import("../core/router.js").Route}} props */
export function FailuresView({ route }) {
  const { query } = route;
  const found = useResource(pathOf(["failures"], query));
  const [dead, queue] = [useResource("dead?limit=500"), useResource("queue")];
  const active = [...query];
  return html`<${PageHead} title="Failures" crumbs=${html`<a href=${hrefOf(["trajectories"], query)}>Trajectories</a>`} />
    ${active.length > 0 && html`<div class="chips">${active.map(([name, value]) => html`<a class="chip on" key=${name} href=${hrefOf(["failures"], changed(query, { [name]: null }))} aria-label=${`Remove the filter ${name}`}>${name} = ${value} ×</a>`)}</div>`}
    <${Await} resource=${found}>${(/** @type {Failures} */ data) => html`<${Whole} data=${data} query=${query} />`}<//>
    ${dead.data?.total > 0 && html`<${Card} title="Given up" flush more=${`${number(dead.data.total)} after their last retry, of all runs`}><${DeadLetters} dead=${dead.data} now=${queue.data?.now ?? null} run=${query.get("run")} /><//>`}`;
}

/** @param {{data: Failures, query: URLSearchParams}} props */
function Whole({ data, query }) {
  const [worst] = data.by_cause;
  const [kind] = data.errors;
  const plain = new URLSearchParams(query);
  if (!data.num) return html`<section class="health ok"><span class="sign" aria-hidden="true">✓</span><p class="sentence">None of ${number(data.num_all)} trajectories failed.</p></section>`;
  return html`<section class="health warn"><span class="sign" aria-hidden="true">!</span><p class="sentence" data-failures>${number(data.num)} of ${number(data.num_all)} trajectories failed${worst?.value ? `, ${number(worst.count)} by ${FAULTS[worst.value] ?? worst.value} fault` : ""}.</p></section>
    <dl class="tiles"><${Tile} label="Failed attempts" value=${number(data.num)} note=${`${percent(data.num_all ? data.num / data.num_all : null)} of all`} />${data.by_status.map((one) => html`<${Tile} key=${one.value} label=${one.value} value=${html`<a href=${hrefOf(["trajectories"], changed(plain, { status: one.value }))}>${number(one.count)}</a>`} />`)}</dl>
    <div class="halves"><${Card} title="By whose fault"><${Shares} lines=${data.by_cause} name="cause" query=${query} told=${(/** @type {string} */ value) => FAULTS[value] ? `${value}: ${FAULTS[value]}` : value} /><//>
      <${Card} title="By task type"><${Shares} lines=${data.by_task_type.slice(0, 8)} name="task_type" query=${query} told=${(/** @type {string} */ value) => value} /><//></div>
    <${Card} title="By error" flush more=${data.num_read < data.num ? `of the newest ${number(data.num_read)}` : "numbers and names are left out"}>${kind ? html`<table class="table"><thead><tr><th scope="col" class="right">Number</th><th scope="col">Error</th><th scope="col">Cause</th><th scope="col" class="wide-only">Newest</th></tr></thead><tbody>${data.errors.slice(0, 30).map((one) => html`<tr key=${one.kind}><td class="right">${number(one.num)}</td><td class="wrap" title=${one.newest}>${one.kind}</td><td>${one.cause && html`<${Badge} status=${one.cause} tone="warn" />`}</td><td class="wide-only examples">${one.examples.map((id) => html`<a class="mono" key=${id} href=${hrefOf(["trajectory", id])}>${shortId(id, 16)} </a>`)}</td></tr>`)}</tbody></table>` : html`<${Empty}>No error was recorded.<//>`}<//>
    ${data.self_inflicted.length > 0 && html`<${Card} title="Ended by its own commands" flush more="by task and policy version; these count as the policy's"><table class="table"><thead><tr><th scope="col" class="right">Number</th><th scope="col">Task</th><th scope="col" class="right">Policy</th></tr></thead><tbody>${data.self_inflicted.slice(0, 30).map((one) => html`<tr key=${`${one.task_id} ${one.version}`}><td class="right">${number(one.num)}</td><td class="wrap"><a href=${hrefOf(["failures"], changed(query, { finding: "self_inflicted", task: one.task_id, policy: one.version === null ? null : `${one.version}..${one.version}` }))}>${one.task_id}</a></td><td class="right">${one.version ?? "–"}</td></tr>`)}</tbody></table><//>`}
    <${Card} title="Newest" flush><${TrajectoryTable} rows=${data.newest} columns=${["trajectory", "task", "type", "status", "cause", "reward", "policy", "findings", "started"]} hrefOfRow=${(/** @type {any} */ row) => hrefOf(["trajectory", row.trajectory_id])} /><//>`;
}

/** @param {{lines: {value: any, count: number}[], name: string, query: URLSearchParams, told: (value: string) => string}} props */
function Shares({ lines, name, query, told }) {
  const most = Math.max(1, ...lines.map((one) => one.count));
  if (!lines.length) return html`<p class="small quiet">It was not told.</p>`;
  return lines.map((one) => html`<p class="measure fault" key=${one.value}>${one.value === null ? html`<span>not told</span>` : html`<a href=${hrefOf(["failures"], changed(query, { [name]: query.get(name) === String(one.value) ? null : one.value }))}>${told(one.value)}</a>`}<${Bar} share=${one.count / most} hue="--hue-4" /><b>${number(one.count)}</b></p>`);
}
