// Small parts that views share: loading and errors, badges, bars, folds, copying.
import { html, useState } from "../core/ui.js";
import { toneOfStatus } from "../pure/colour.js";

/** Show an answer, or why there is none yet. @param {{resource: {data: any, error: Error | null}, children: (data: any) => any}} props */
export function Await({ resource, children }) {
  const { data, error } = resource;
  if (data) return html`<div class="answer">${error && html`<${Failure} error=${error} />`}${children(data)}</div>`; // one element: Preact puts fragments that change beside each other in a wrong order
  return error ? html`<${Failure} error=${error} />` : html`<div class="loading" role="status" aria-label="Loading"></div>`;
}

/** @param {{error: Error}} props */
export const Failure = ({ error }) => html`<p class="note-box bad" role="alert">${error.message}</p>`;

/** @param {{status: string | null | undefined, tone?: string}} props */
export const Badge = ({ status, tone }) => status && html`<span class=${`badge ${tone ?? toneOfStatus(status)}`}><i class="dot"></i>${status}</span>`;

/** A share of one as a bar. @param {{share: number | null, hue?: string}} props */
export const Bar = ({ share, hue = "--hue-0" }) =>
  html`<span class="bar" aria-hidden="true">${share !== null && html`<i style=${{ left: 0, width: `${100 * clamp(share)}%`, background: `var(${hue})` }}></i>`}</span>`;

/** A signed share of one, from the middle. @param {{share: number | null}} props */
export function MiddleBar({ share }) {
  const size = share === null ? 0 : 50 * clamp(Math.abs(share));
  const left = (share ?? 0) < 0 ? 50 - size : 50;
  return html`<span class="bar mid" aria-hidden="true"><i style=${{ left: `${left}%`, width: `${size}%`, background: `var(${(share ?? 0) < 0 ? "--hue-1" : "--hue-0"})` }}></i></span>`;
}

/** @param {number} value */
const clamp = (value) => Math.min(1, Math.max(0, value));

/** @param {{title: any, more?: any, children?: any, flush?: boolean, class?: string}} props */
export const Card = ({ title, more, children, flush = false, class: kind = "" }) => html`
  <section class=${`card ${kind}`} aria-label=${title}>
    <div class="head"><h2>${title}</h2>${more && html`<span class="more small quiet">${more}</span>`}</div>
    <div class=${flush ? "flush scroll-x" : "body"}>${children}</div>
  </section>`;

/** @param {{crumbs?: any, title: string, children?: any, more?: any}} props */
export const PageHead = ({ crumbs, title, children, more }) => html`
  <div class="page-head">${crumbs && html`<p class="crumbs">${crumbs}</p>`}<h1>${title}</h1>${children}<span class="more">${more}</span></div>`;

/** @param {{label: string, value: any, note?: any}} props */
export const Tile = ({ label, value, note }) => html`<div class="tile"><dt>${label}</dt><dd>${value}${note && html`<span class="note">${note}</span>`}</dd></div>`;

/** A line of text with a button that copies it. @param {{label: string, text: string}} props */
export function CopyLine({ label, text }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return html`<div class="copyline"><span class="small quiet">${label}</span><code tabindex="0">${text}</code>
    <button class="button" onClick=${copy} aria-label=${`Copy: ${label}`}>${isCopied ? "copied" : "copy"}</button></div>`;
}

/** @param {{children?: any}} props */
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
