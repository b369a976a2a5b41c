// Rollouts that were given up: by error, one by one, and for an operator all that are chosen again, or forgotten.
import { html, useState } from "../core/ui.js";
import { hrefOf } from "../core/router.js";
import { useRights } from "../core/writes.js";
import { number, seconds, shortId } from "../pure/format.js";
import { errorLine, toggledAll } from "../pure/dead.js";
import { Empty } from "./basic.js";
import { OrderButton } from "./order.js";

/** @param {{dead: import("../core/types.js").DeadLetters, now: number | null, run?: string | null}} props */
export function DeadLetters({ dead, now, run = null }) {
  const { may_write: mayWrite } = useRights();
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  const items = dead.items.filter((one) => run === null || one.run === run);
  if (!items.length) return html`<${Empty}>${dead.total && run !== null ? `None of run ${run} is among the newest ${number(dead.items.length)} that were given up.` : "No rollout was given up."}<//>`;
  const ids = items.map((one) => one.rollout_id);
  const kept = chosen.filter((id) => ids.includes(id));
  /** @param {string} error */
  const withError = (error) => items.filter((one) => errorLine(one.errors) === error).map((one) => one.rollout_id);
  const errors = dead.by_error.map(({ error }) => ({ error, mine: withError(error) })).filter(({ mine }) => mine.length > 0).slice(0, 6);
  return html`<p class="chips pad">${errors.map(({ error, mine }) => mayWrite
      ? html`<button class=${`chip ${mine.every((id) => kept.includes(id)) ? "on" : ""}`} key=${error} title=${error} aria-pressed=${mine.every((id) => kept.includes(id)) ? "true" : "false"} onClick=${() => setChosen(toggledAll(kept, mine))}><b class="num">${mine.length}</b><span class="cut">${error.slice(0, 60)}</span></button>`
      : html`<span class="chip" key=${error} title=${error}><b class="num">${mine.length}</b><span class="cut">${error.slice(0, 60)}</span></span>`)}</p>
    ${mayWrite && html`<p class="chips pad"><button class="button" onClick=${() => setChosen(kept.length === ids.length ? [] : ids)}>${kept.length === ids.length ? "Choose none" : `Choose all ${number(ids.length)}`}</button><${Orders} chosen=${kept} onDone=${() => setChosen([])} /></p>`}
    <table class="table"><thead><tr>${mayWrite && html`<th scope="col"><span class="visually-hidden">Chosen</span></th>`}<th scope="col">Rollout</th><th scope="col" class="wide-only">Run</th><th scope="col" class="right">Died</th><th scope="col" class="right">Attempts</th><th scope="col">Last error</th></tr></thead><tbody>${items.map((one) => html`<tr key=${one.rollout_id}>
      ${mayWrite && html`<td><input type="checkbox" aria-label=${`Choose ${one.rollout_id}`} checked=${kept.includes(one.rollout_id)} onChange=${() => setChosen(toggledAll(kept, [one.rollout_id]))} /></td>`}
      <td><a class="mono" href=${hrefOf(["trajectory", `${one.rollout_id}-${Math.max(0, one.num_attempts - 1)}`])} title=${one.rollout_id}>${shortId(one.rollout_id, 24)}</a></td><td class="wide-only">${one.run}</td>
      <td class="right nowrap">${now === null ? "" : `${seconds(Math.max(0, now - one.died_at))} ago`}</td><td class="right">${one.num_attempts}</td><td class="cut" title=${one.errors.join("\n")}>${one.errors.at(-1) ?? "–"}</td></tr>`)}</tbody></table>`;
}

/** @param {{chosen: string[], onDone: () => void}} props */
function Orders({ chosen, onDone }) {
  const num = `${number(chosen.length)} ${chosen.length === 1 ? "rollout" : "rollouts"}`;
  return html`<${OrderButton} label=${`Retry ${number(chosen.length)}`} name="retry" isDisabled=${!chosen.length} title=${`Retry ${num}?`} verb="Retry" path=${["dead", "retry"]} body=${{ rollouts: chosen }} onDone=${onDone} told="Each runs again from the beginning: in its place while its group is open, in a new group where that has closed." />
    <${OrderButton} label=${`Drop ${number(chosen.length)}`} name="drop" isDisabled=${!chosen.length} title=${`Drop ${num}?`} verb="Drop" path=${["dead", "drop"]} body=${{ rollouts: chosen }} onDone=${onDone} told="They leave the list of dead letters with their errors, and cannot be retried. What they recorded stays in the store." />`;
}
