// The tree of prefixes: which steps share tokens, where a prompt broke its prefix and why, sub-agents, branches that were given up.
import { html, useEffect, useMemo, useState } from "../core/ui.js";
import { go } from "../core/router.js";
import { get, pathOf, useResource } from "../core/api.js";
import { Await, Badge, Card, Tile } from "../parts/basic.js";
import { Legend } from "../parts/chart.js";
import { useNarrow } from "../parts/narrow.js";
import { StepCard } from "../parts/step_card.js";
import { number, percent } from "../pure/format.js";
import { breakOf, CAUSES, placedForks } from "../pure/forks.js";
import { ticks } from "../pure/layout.js";
import { visible } from "../pure/tokens.js";

/** @typedef {import("../core/types.js").Forks} Forks */
/** @typedef {import("../core/types.js").ForkNode} ForkNode */
const ROW = 30;
const LEFT = 8;
/** Tokens that are shown before and behind a break. */
const AROUND = 40;
/** Longer trajectories are not loaded whole for it. */
const MOST_COMPARED = 16384;
const HUES = ["--hue-0", "--hue-2", "--hue-3", "--hue-5"];

/** @param {{data: import("../core/types.js").Trajectory, at: number, to: (changes: any) => string}} props */
export function ForksTab({ data, at, to }) {
  const forks = useResource(pathOf(["trajectories", data.row.trajectory_id, "forks"]));
  return html`<${Await} resource=${forks}>${(/** @type {Forks} */ found) => html`<${Tree} forks=${found} data=${data} at=${at} to=${to} />`}<//>`;
}

/** @param {{forks: Forks, data: import("../core/types.js").Trajectory, at: number, to: (changes: any) => string}} props */
function Tree({ forks, data, at, to }) {
  const { nodes, rows, num_tokens: total, num_given_again: again } = forks;
  const abandoned = nodes.filter((one) => one.is_abandoned);
  const breaks = Object.values(forks.causes).reduce((all, one) => all + one, 0);
  const agents = [...new Set(nodes.map((one) => one.agent ?? "policy"))];
  const chosen = data.steps[at];
  const broken = (nodes[at]?.cause ? nodes[at] : nodes.find((one) => one.cause))?.step;
  const told = Object.entries(forks.causes).map(([cause, num]) => `${num} ${cause.replaceAll("_", " ")}`).join(", ");
  return html`<dl class="tiles"><${Tile} label="Paths" value=${rows.length} note=${rows.length === 1 ? "all steps share one prefix" : "from a first prompt to a last answer"} /><${Tile} label="Broken prefixes" value=${breaks} note=${told} />
      <${Tile} label="Read again" value=${number(again)} note=${`prompt tokens after a break, ${percent(total ? again / total : 0)} of all`} /><${Tile} label="Abandoned" value=${abandoned.length} note="steps that nothing continues" />
      <${Tile} label="Agents" value=${agents.length} note=${`${new Set(nodes.filter((one) => one.is_subagent).map((one) => one.agent)).size} of them sub-agents`} /></dl>
    <${Card} title="Prefixes" more="left to right: tokens of the context"><${Picture} nodes=${nodes} agents=${agents} at=${at} onPick=${(/** @type {number} */ step) => go(to({ step }), { replace: true })} /><//>
    <${Special} nodes=${nodes} to=${to} />
    ${broken !== undefined && total <= MOST_COMPARED && html`<${Broken} id=${data.row.trajectory_id} step=${broken} total=${total} />`}
    ${chosen && html`<${StepCard} id=${data.row.trajectory_id} step=${chosen} isOn hidden=${new Set()} href=${to({ tab: "tokens", step: at })} />`}`;
}

/** @param {{nodes: ForkNode[], agents: string[], at: number, onPick: (step: number) => void}} props */
function Picture({ nodes, agents, at, onPick }) {
  const { placed, numRows, numTokens } = useMemo(() => placedForks(nodes), [nodes]);
  const width = useNarrow() ? 335 : 1000;
  const x = (/** @type {number} */ tokens) => LEFT + (tokens / numTokens) * (width - LEFT - 12);
  const height = numRows * ROW + 22;
  const hueOf = (/** @type {ForkNode} */ node) => `var(${HUES[agents.indexOf(node.agent ?? "policy") % HUES.length]})`;
  return html`<svg class="timeline" viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${`${nodes.length} steps in ${numRows} branches, ${numTokens} tokens at most`}>
      ${ticks(0, numTokens, width / 170).map((mark) => html`<g key=${mark}><line class="grid" x1=${x(mark)} x2=${x(mark)} y1="0" y2=${height - 18} /><text x=${x(mark)} y=${height - 4} text-anchor=${mark ? x(mark) > width - 16 ? "end" : "middle" : "start"}>${number(mark)}</text></g>`)}
      ${placed.map((place) => place.from && html`<path key=${`l${place.step}`} class="branch" d=${`M${x(place.from.at)} ${place.from.row * ROW + 13} V${place.row * ROW + 13} H${x(place.start)}`} stroke-dasharray=${nodes[place.step]?.link === "call" ? "3 3" : undefined} />`)}
      ${placed.map((place) => {
        const node = /** @type {ForkNode} */ (nodes[place.step]);
        const y = place.row * ROW + 4;
        return html`<g key=${place.step} class="step" opacity=${node.is_abandoned ? 0.4 : 1} onClick=${() => onPick(place.step)}><title>${toldOf(node)}</title>
          <rect x=${x(place.start)} y=${y + 5} width=${Math.max(1, x(place.sampledFrom) - x(place.start))} height="8" rx="2" fill=${node.cause ? "var(--hue-4)" : "var(--line-strong)"} />
          <rect x=${x(place.sampledFrom)} y=${y} width=${Math.max(3, x(place.end) - x(place.sampledFrom) - 1)} height="18" rx="3" fill=${hueOf(node)} class=${place.step === at ? "on" : ""} />
          ${node.cause && html`<text class="cause" x=${x(place.start) + 2} y=${y + 25}>${node.cause.replaceAll("_", " ")}</text>`}</g>`;
      })}</svg>
    <${Legend} series=${[...agents.map((label, at_) => ({ label: `${label} answers`, hue: HUES[at_ % HUES.length] ?? "--hue-0" })), { label: "prompt adds", hue: "--line-strong" }, { label: "prompt breaks its prefix", hue: "--hue-4" }]} />
    <p class="tiny quiet">Paler: abandoned. Dashed: a call led there, with a prompt of its own. Click a step, or walk with j and k.</p>`;
}

/** @param {{nodes: ForkNode[], to: (changes: any) => string}} props */
function Special({ nodes, to }) {
  const told = nodes.filter((one) => one.cause || one.is_abandoned || (one.is_subagent && one.link !== "tokens"));
  if (!told.length) return html`<p class="note-box small">Each step continues the tokens before it. Nothing was abandoned.</p>`;
  return html`<${Card} title="Breaks, sub-agents, what was abandoned" flush><table class="table"><thead><tr><th scope="col">Step</th><th scope="col">What</th><th scope="col">Why</th><th scope="col" class="right wide-only">Read again</th><th scope="col" class="wide-only">Comes from</th></tr></thead>
    <tbody>${told.map((one) => html`<tr key=${one.step}><td class="nowrap"><a href=${to({ step: one.step })}>Step ${one.step}</a></td>
      <td><span class="chips">${one.cause && html`<${Badge} status="broken prefix" tone="warn" />`}${one.is_abandoned && html`<${Badge} status="abandoned" tone="warn" />`}${one.is_subagent && html`<${Badge} status=${`sub-agent ${one.agent ?? ""}`} tone="accent" />`}</span></td>
      <td>${one.cause ? html`<b>${one.cause.replaceAll("_", " ")}</b>: ${CAUSES[one.cause] ?? "not known"}` : (one.is_abandoned ? one.status === "aborted" ? "a resume left it" : "another branch went on" : "")}</td><td class="right wide-only">${one.cause ? number(one.num_given) : ""}</td><td class="wide-only">${one.parent === null ? "" : `step ${one.parent}`}</td></tr>`)}</tbody></table><//>`;
}

/** The place at which a prompt leaves the tokens that it should continue. @param {{id: string, step: number, total: number}} props */
function Broken({ id, step, total }) {
  const [whole, setWhole] = useState(/** @type {any} */ (null));
  useEffect(() => {
    const abort = new AbortController();
    get(pathOf(["trajectories", id, "tokens"], { from: "0", to: String(total) }), abort.signal).then(setWhole, () => {});
    return () => abort.abort();
  }, [id, total]);
  const found = useMemo(() => whole && breakOf(whole, step), [whole, step]);
  if (!found) return "";
  const shown = (/** @type {import("../pure/forks.js").Token[]} */ tokens, /** @type {boolean} */ isParted) => tokens.map(([text, token], at) => html`<span key=${at} class=${`t ${isParted && at === 0 ? "parted" : ""}`}>${visible(text, token)}</span>`);
  const lines = /** @type {const} */ ([["both", found.shared.slice(-AROUND), false], [`step ${found.other} had`, found.expected.slice(0, AROUND), true], [`step ${step} has`, found.got.slice(0, AROUND), true]]);
  return html`<${Card} title=${`Where the prompt of step ${step} breaks`} more=${`at token ${number(found.at)}`}>${lines.map(([name, tokens, isParted]) => html`<p class="strip named" key=${name}><span class="side quiet">${name}</span><span class="run" data-side=${name}>${shown(tokens, isParted)}${isParted && !tokens.length && html`<span class="quiet">ends here</span>`}</span></p>`)}<//>`;
}

/** @param {ForkNode} node */
function toldOf(node) {
  const why = node.cause ? `, breaks its prefix: ${node.cause.replaceAll("_", " ")}` : node.is_abandoned ? ", abandoned" : "";
  return `Step ${node.step} of ${node.agent ?? "policy"}: ${number(node.prefix_length)} tokens shared, ${number(node.num_given)} given, ${number(node.num_sampled)} sampled${why}`;
}
