// All runs, newest first: is each all right, and how far is it?
import { html } from "../core/ui.js";
import { hrefOf } from "../core/router.js";
import { useResource } from "../core/api.js";
import { Await, Badge, Empty, PageHead } from "../parts/basic.js";
import { moment, number, percent } from "../pure/format.js";

const WORDS = { ok: ["all right", "good"], warn: ["look", "warn"], stop: ["stopped", "bad"], unknown: ["not measured", ""] };

export function RunsView() {
  const runs = useResource("runs");
  return html`<${PageHead} title="Runs" />
    <${Await} resource=${runs}>${(/** @type {{items: import("../core/types.js").RunSummary[]}} */ { items }) =>
      items.length ? html`<div class="card">${items.map((run) => html`<${RunCard} key=${run.run} run=${run} />`)}</div>`
        : html`<div class="card"><${Empty}>Nothing is stored yet. Start with 'agent-layer demo', or see an example with 'agent-layer view --demo'.<//></div>`}<//>`;
}

/** @param {{run: import("../core/types.js").RunSummary}} props */
function RunCard({ run }) {
  const [word, tone] = run.is_evaluation && run.health === "unknown" ? ["evaluation", "accent"] : WORDS[run.health];
  const facts = [["Success", percent(run.success_rate)], ["Trajectories", number(run.num_trajectories)], ["Updates", number(run.num_updates)], ["Newest", moment(run.newest_started_at)]];
  return html`<a class="run-card" href=${hrefOf(["run", run.run])}>
    <span class="name"><span class="cut">${run.run}</span><${Badge} status=${run.finding ? `${word}: ${run.finding_title || run.finding.replaceAll("_", " ")}` : word} tone=${tone} />${run.is_cooled && html`<${Badge} status="bucket alone" tone="warn" />`}</span>
    ${facts.map(([name, value]) => html`<span key=${name}><span class="tiny quiet">${name}</span><br /><b class="num small">${value}</b></span>`)}</a>`;
}
