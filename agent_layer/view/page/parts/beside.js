// A second run beside the one that is shown: its choice, which is part of the address, and what both have reached.
import { html } from "../core/ui.js";
import { changed, go, hrefOf } from "../core/router.js";
import { useResource } from "../core/api.js";
import { number, percent, signed } from "../pure/format.js";
import { Card } from "./basic.js";

/** @param {{route: import("../core/router.js").Route}} props */
export function BesideChoice({ route }) {
  const [run = ""] = route.parts;
  const chosen = route.query.get("with") ?? "";
  /** @type {Set<string>} */ const known = new Set();
  const runs = useResource("runs", (_, change) => change === null || change.runs.some((name) => !known.has(name))); // names alone are shown: a run that is known changes none
  for (const one of runs.data?.items ?? []) known.add(one.run);
  const names = [...new Set([...known, ...(chosen ? [chosen] : [])])].filter((name) => name !== run);
  if (!names.length) return "";
  return html`<select class="field" aria-label="Beside another run" value=${chosen} onChange=${(/** @type {any} */ event) => go(hrefOf([route.name, run], changed(route.query, { with: event.target.value || null })))}>
    <option value="">beside …</option>${names.map((name) => html`<option key=${name} value=${name}>beside ${name}</option>`)}</select>`;
}

/** @param {{run: import("../core/types.js").Run, other: import("../core/types.js").Run}} props */
export function Compared({ run, other }) {
  /** @type {[string, (one: import("../core/types.js").Run) => number | null | undefined, (value: any) => string][]} */
  const measures = [
    ["Success", (one) => one.counts.success_rate, percent], ["Mean reward", (one) => one.counts.mean_reward, number], ["Trajectories", (one) => one.counts.trajectories, number],
    ["Accepted", (one) => one.counts.accepted, number], ["Newest policy", (one) => one.newest_version?.number, (value) => (value === null || value === undefined ? "–" : `v${value}`)], ["Updates", (one) => one.steps.step.at(-1), number],
  ];
  return html`<${Card} title="Both runs" flush><table class="table" data-compared><thead><tr><th scope="col">Measure</th><th scope="col" class="right">${run.run}</th><th scope="col" class="right"><a href=${hrefOf(["run", other.run])}>${other.run}</a></th><th scope="col" class="right">Difference</th></tr></thead><tbody>
    ${measures.map(([title, read, told]) => html`<tr key=${title}><td>${title}</td><td class="right">${told(read(run))}</td><td class="right">${told(read(other))}</td><td class="right">${difference(read(run), read(other), told === percent)}</td></tr>`)}</tbody></table><//>`;
}

/** @param {number | null | undefined} one @param {number | null | undefined} other @param {boolean} isShare */
function difference(one, other, isShare) {
  if (one === null || one === undefined || other === null || other === undefined) return "–";
  return isShare ? `${signed(100 * (one - other), 0)} points` : signed(one - other, Number.isInteger(one) && Number.isInteger(other) ? 0 : 2);
}
