// Steps of a trajectory on a time axis, a lane for each agent; a tool's answer follows its step.
import { html } from "../core/ui.js";
import { useNarrow } from "./narrow.js";
import { seconds } from "../pure/format.js";
import { ticks } from "../pure/layout.js";

const LANE = 26;

/** @param {{steps: import("../core/types.js").Step[], at: number, onPick: (step: number) => void}} props */
export function Timeline({ steps, at, onPick }) {
  const [width, left, letters] = useNarrow() ? [335, 60, 8] : [1000, 90, 14];
  const timed = steps.filter((step) => step.started_at !== null);
  if (!timed.length) return html`<p class="small quiet">No step yet.</p>`;
  const start = Math.min(...timed.map((step) => step.started_at));
  const end = Math.max(...timed.map((step) => step.ended_at ?? step.started_at), ...steps.flatMap((step) => step.observations.map((one) => one.at ?? 0)), start + 0.001);
  const agents = [...new Set(steps.map((step) => step.agent ?? step.role))];
  const x = (/** @type {number} */ time) => left + ((time - start) / (end - start)) * (width - left - 10);
  const height = agents.length * LANE + 22;
  return html`<svg class="timeline" viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${`${steps.length} steps of ${agents.join(", ")} in ${seconds(end - start)}`}>
    ${ticks(0, end - start, width / 170).map((mark) => html`<g key=${mark}><line class="grid" x1=${x(start + mark)} x2=${x(start + mark)} y1="0" y2=${height - 18} /><text x=${x(start + mark)} y=${height - 4} text-anchor=${x(start + mark) > width - 20 ? "end" : "middle"}>${seconds(mark)}</text></g>`)}
    ${agents.map((agent, lane) => html`<text key=${agent} x="0" y=${lane * LANE + 17}>${agent.slice(0, letters)}</text>`)}
    ${timed.map((step) => {
      const y = agents.indexOf(step.agent ?? step.role) * LANE + 4;
      const length = Math.max(3, x(step.ended_at ?? end) - x(step.started_at));
      const answered = step.observations.map((one) => one.at).filter((one) => one !== null);
      const fill = step.status === "ok" ? "var(--hue-0)" : step.status === null ? "var(--hue-5)" : "var(--hue-4)";
      return html`<g key=${step.index} class="step" onClick=${() => onPick(step.index)}><title>${`Step ${step.index}: ${seconds(step.ended_at && step.ended_at - step.started_at)}`}</title>
        ${answered.length > 0 && step.ended_at && html`<rect x=${x(step.ended_at)} y=${y + 6} width=${Math.max(2, x(Math.max(...answered)) - x(step.ended_at))} height="6" rx="2" fill="var(--hue-2)" />`}
        <rect x=${x(step.started_at)} y=${y} width=${length} height="18" rx="3" fill=${fill} class=${step.index === at ? "on" : ""} /></g>`;
    })}</svg>
    <div class="legend"><span><i class="swatch" style=${{ background: "var(--hue-0)" }}></i>policy answers</span>${timed.some((step) => step.observations.some((one) => one.at !== null)) && html`<span><i class="swatch" style=${{ background: "var(--hue-2)" }}></i>tools answer</span>`}${timed.some((step) => step.status !== null && step.status !== "ok") && html`<span><i class="swatch" style=${{ background: "var(--hue-4)" }}></i>aborted or failed</span>`}${timed.some((step) => step.status === null) && html`<span><i class="swatch" style=${{ background: "var(--hue-5)" }}></i>still runs</span>`}</div>`;
}
