// One step: state (what is new in the prompt), action (message and tool calls), observations, reward.
import { html, useState } from "../core/ui.js";
import { pathOf } from "../core/api.js";
import { addressOf } from "../core/transport.js";
import { contentText, imagesOf, number, readable, seconds, withoutScheme } from "../pure/format.js";
import { Badge } from "./basic.js";

const LONG = 1500;

/** What one side said, as text and raster images from our own address, and nothing else.
 * @param {{role: string, name?: string | null, text: string, isCode?: boolean, badge?: any, images?: string[]}} props */
export function Said({ role, name, text, isCode = false, badge, images = [] }) {
  const body = text || !images.length ? html`<pre class=${isCode ? "code" : ""} tabindex=${text.length > LONG ? 0 : undefined}>${text || "(empty)"}</pre>` : "";
  return html`<div class=${`said ${role}`}><p class="who">${role}${name && ` · ${name}`} ${badge}</p>
    ${text.length > LONG && role !== "assistant" ? html`<details class="fold"><summary>${number(text.length)} characters</summary>${body}</details>` : body}
    ${images.map((path, at) => html`<${Seen} key=${path} path=${path} name=${`Image ${at + 1} of ${images.length}`} />`)}</div>`;
}

/** An image, or why it is not seen. @param {{path: string, name: string}} props */
function Seen({ path, name }) {
  const [isBroken, setBroken] = useState(false);
  const address = addressOf(path);
  return isBroken || !address ? html`<p class="small quiet">${name} is not shown: it is no PNG, JPEG, GIF or WebP, or too large.</p>` : html`<img class="seen" src=${address} alt=${name} loading="lazy" onError=${() => setBroken(true)} />`;
}

/** @param {{id: string, step: import("../core/types.js").Step, isOn: boolean, hidden: Set<string>, href: string, order?: any}} props */
export function StepCard({ id, step, isOn, hidden, href, order }) {
  const pathsOf = (/** @type {unknown} */ content) => imagesOf(content).map((name) => pathOf(["trajectories", id, "images", name]));
  const shown = step.new_messages.filter((one) => !(hidden.has("system") && one.role === "system") && !(hidden.has("tools") && one.role === "tool"));
  const { message } = step;
  const reasoning = message?.reasoning ?? message?.reasoning_content;
  const calls = message?.tool_calls ?? [];
  const answered = new Set(step.new_messages.filter((one) => one.role === "tool").map((one) => contentText(one.content)));
  const text = contentText(message?.content);
  return html`<section class=${`card step-card ${isOn ? "on" : ""}`} id=${`step-${step.index}`} aria-label=${`Step ${step.index}`}>
    <div class="head"><h2>Step ${step.index}</h2><${Badge} status=${step.status ?? "running"} />${step.role === "aux" && html`<${Badge} status="aux: not trained" />`}${step.break_cause && html`<${Badge} status=${`forked: ${step.break_cause.replaceAll("_", " ")}`} tone="warn" />`}${step.findings.map((one) => html`<${Badge} key=${one} status=${one.replaceAll("_", " ")} tone="warn" />`)}
      ${step.reward !== null && html`<span class="badge accent">reward ${number(step.reward)}</span>`}<span class="more small chips">${order}<a href=${href}>tokens</a></span></div>
    <div class="body"><p class="facts"><span>${step.agent ?? step.role}</span><span>took <b>${seconds(step.ended_at && step.ended_at - step.started_at)}</b></span><span>sampled <b>${number(step.num_response_tokens)}</b> of <b>${number((step.num_prompt_tokens ?? 0) + (step.num_response_tokens ?? 0))}</b> tokens</span>
        <span>policy <b>${(step.policy_versions ?? []).map(([version]) => `v${version}`).join(", ") || "–"}</b></span><span>log-probability <b>${number(step.logprob_mean)}</b></span>${step.engine && html`<span title=${step.engine}>engine <b>${withoutScheme(step.engine)}</b></span>`}<span>ends by <b>${step.finish_reason ?? "–"}</b></span></p>
      ${step.error && html`<p class="note-box bad small">${step.error}</p>`}
      ${shown.map((one, key) => html`<${Said} key=${key} role=${one.role} name=${one.name} text=${contentText(one.content)} isCode=${one.role === "tool"} images=${pathsOf(one.content)} />`)}
      ${reasoning && !hidden.has("reasoning") && html`<details class="fold"><summary>Reasoning</summary><pre class="small quiet">${reasoning}</pre></details>`}
      ${message && (text || !calls.length) && html`<${Said} role="assistant" text=${text} images=${pathsOf(message.content)} />`}
      ${!hidden.has("tools") && calls.map((one, key) => html`<${Call} key=${key} call=${/** @type {any} */ (one)} />`)}
      ${!hidden.has("tools") && step.observations.filter((one) => !answered.has(contentText(one.output))).map((one, key) => html`<${Said} key=${key} role="tool" name=${one.name} text=${contentText(one.output)} isCode images=${pathsOf(one.output)} badge=${html`<${Badge} status=${one.status} /><span>${seconds(one.duration_seconds)}</span>`} />`)}
    </div></section>`;
}

/** @param {{call: any}} props */
function Call({ call }) {
  const called = call.function ?? call;
  return html`<${Said} role="assistant" name=${`calls ${readable(called.name) || "a tool"}`} text=${readable(called.arguments ?? called.input ?? called)} isCode />`;
}
