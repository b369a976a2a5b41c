// The journal of writes: who changed what, when, what was there before and after.
import { html } from "../core/ui.js";
import { useResource } from "../core/api.js";
import { Badge, Card } from "./basic.js";
import { clock, shortId } from "../pure/format.js";

/** @typedef {{id: string, at: number, by: string, address: string | null, action: string, subject: string, before: Record<string, unknown>, after: Record<string, unknown> | null, error: string | null}} Change */

/** The newest writes; nothing where none was ever made. */
export function Changes() {
  const { data } = useResource("writes?limit=20");
  const items = /** @type {Change[]} */ (data?.items ?? []);
  if (!items.length) return null;
  return html`<${Card} title="Changes" flush more="that people made from the page"><table class="table"><thead><tr><th scope="col">When</th><th scope="col">By</th><th scope="col">What</th><th scope="col">Of</th><th scope="col" class="wide-only">Before</th><th scope="col" class="wide-only">After</th></tr></thead><tbody>${items.map((one) => html`<tr key=${one.id}>
    <td class="nowrap num">${clock(one.at)}</td><td class="cut" title=${one.address ?? ""}>${one.by}</td><td>${one.action}${one.error !== null && html` <${Badge} status="failed" tone="bad" />`}</td><td class="mono cut" title=${one.subject}>${shortId(one.subject, 28)}</td>
    <td class="wide-only cut" title=${told(one.before)}>${told(one.before)}</td><td class="wide-only cut" title=${one.error ?? told(one.after)}>${one.error ?? told(one.after)}</td></tr>`)}</tbody></table><//>`;
}

/** @param {Record<string, unknown> | null} state */
const told = (state) => Object.entries(state ?? {}).map(([name, value]) => `${name} ${value === null ? "–" : String(value)}`).join(", ");
