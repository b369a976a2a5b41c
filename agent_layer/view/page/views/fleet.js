// What runs now: workers, what waits and for whom, engines with their versions, dead letters, sandboxes. Finished runs have none.
import { html } from "../core/ui.js";
import { hrefOf } from "../core/router.js";
import { ApiError, useResource } from "../core/api.js";
import { Await, Badge, Bar, Card, Empty, PageHead, Tile } from "../parts/basic.js";
import { Changes } from "../parts/changes.js";
import { DeadLetters } from "../parts/dead_letters.js";
import { OrderButton } from "../parts/order.js";
import { number, percent, seconds, shortId, withoutScheme } from "../pure/format.js";
import { fleetSentence } from "../pure/fleet.js";

/** @typedef {import("../core/types.js").Queue} Queue */
/** @typedef {import("../core/types.js").Worker} Worker */

const TONES = /** @type {Record<string, string>} */ ({ up: "good", draining: "warn", silent: "bad", serving: "good" });

/** @param {{route: import("../core/router.js").Route}} props */
export function FleetView({ route }) {
  const [workers, queue, engines, dead, boxes] = [useResource("workers"), useResource("queue"), useResource("engines"), useResource("dead?limit=500"), useResource("sandboxes")];
  if (workers.error instanceof ApiError && workers.error.status === 404) return html`<${PageHead} title="Fleet" /><p class="note-box" data-fleet>This page shows a bucket alone: stored trajectories, without the Redis that knew them. Workers, the queue, engines, sandboxes and dead letters are not in it. <code>agent-layer view</code> of a store whose Redis has a run shows them.</p>`;
  const all = workers.data && queue.data && engines.data;
  return html`<${PageHead} title="Fleet"><span class="quiet">what runs now</span><//>
    <div class="answer">${all && html`<${Overview} workers=${workers.data.items} queue=${queue.data} engines=${engines.data.items} />`}</div>
    <${Card} title="Workers" flush><${Await} resource=${workers}>${(/** @type {any} */ data) => html`<${Workers} items=${data.items} />`}<//><//>
    <${Card} title="Engines" flush><${Await} resource=${engines}>${(/** @type {any} */ data) => html`<${Engines} items=${data.items} named=${route.query.get("engine")} />`}<//><//>
    <${Await} resource=${queue}>${(/** @type {Queue} */ data) => html`<${Waiting} queue=${data} /><${Leases} queue=${data} />`}<//>
    <${Card} title="Dead letters" flush more="given up after the last retry"><${Await} resource=${dead}>${(/** @type {any} */ data) => html`<${DeadLetters} dead=${data} now=${queue.data?.now ?? null} />`}<//><//>
    <${Card} title="Sandboxes" flush more="of this machine"><${Await} resource=${boxes}>${(/** @type {any} */ data) => html`<${Boxes} items=${data.items} now=${queue.data?.now ?? null} />`}<//><//>
    <${Changes} />`;
}

/** @param {{workers: Worker[], queue: Queue, engines: import("../core/types.js").Engine[]}} props */
function Overview({ workers, queue, engines }) {
  const up = workers.filter((one) => one.state !== "silent");
  const [slots, held] = [up.reduce((all, one) => all + (one.slots ?? 0), 0), up.reduce((all, one) => all + (one.held ?? 0), 0)];
  const { level, sentence } = fleetSentence(workers, queue, engines);
  const serving = engines.filter((one) => one.state === "serving" && !one.is_drained);
  const { totals } = queue;
  return html`<section class=${`health ${level}`} aria-label="Health"><span class="sign" aria-hidden="true">${level === "ok" ? "✓" : level === "unknown" ? "?" : "!"}</span><p class="sentence" data-fleet>${sentence}</p></section>
    <dl class="tiles"><${Tile} label="Workers" value=${up.length} note=${workers.length > up.length ? `${workers.length - up.length} silent` : "none is silent"} />
      <${Tile} label="Running rollouts" value=${number(totals.num_leased)} note=${slots ? `${number(held)} of ${number(slots)} slots in use` : "no worker has a slot"} />
      <${Tile} label="Queued" value=${number(totals.num_queued)} note=${`${number(totals.num_delayed)} in back-off, ${number(totals.num_paused)} paused`} />
      <${Tile} label="Open groups" value=${number(totals.num_open_groups)} />
      <${Tile} label="Engines" value=${`${serving.length} of ${engines.length}`} note="serve" />
      <${Tile} label="Dead letters" value=${number(totals.num_dead)} /></dl>`;
}

/** @param {{head: [string, string?][], children?: any}} props */
const Table = ({ head, children }) => html`<table class="table"><thead><tr>${head.map(([title, kind]) => html`<th key=${title} scope="col" class=${kind}>${title}</th>`)}</tr></thead><tbody>${children}</tbody></table>`;

/** @param {{items: Worker[]}} props */
function Workers({ items }) {
  if (!items.length) return html`<${Empty}>No worker was seen in the last day: <code>agent-layer work TARGET</code> starts one.<//>`;
  return html`<${Table} head=${[["Worker"], ["State"], ["Seen"], ["Slots in use"], ["Agent", "wide-only"], ["Offers", "wide-only"], ["", "right"]]}>${items.map((one) => html`<tr key=${one.worker}>
    <td class="mono nowrap"><span title=${one.worker}>${shortId(one.worker, 26)}</span></td><td><${Badge} status=${one.state} tone=${TONES[one.state]} /></td><td class="nowrap">${seconds(one.silent_seconds)} ago</td>
    <td><span class="slots"><${Bar} share=${one.slots ? (one.held ?? 0) / one.slots : null} /><b class="num">${number(one.held)}/${number(one.slots)}</b></span></td><td class="wide-only">${one.agent ?? "–"}</td>
    <td class="wide-only"><span class="chips">${one.offers.map((offer) => html`<span class="badge" key=${offer}>${offer}</span>`)}</span></td><td class="right">${one.state !== "draining" && html`<${OrderButton} label="Drain" title=${`Drain worker ${one.worker}?`} verb="Drain" path=${["workers", one.worker, "drain"]} told=${`It claims nothing more, finishes the ${number(one.held)} that it holds, and exits. Nothing starts it again.`} />`}</td></tr>`)}<//>`;
}

/** Engines; the one that an address names is marked. @param {{items: import("../core/types.js").Engine[], named: string | null}} props */
function Engines({ items, named }) {
  if (!items.length) return html`<${Empty}>No engine is registered: <code>agent-layer engines join URL</code> adds one.<//>`;
  return html`<${Table} head=${[["Engine"], ["State"], ["Policy"], ["Run", "wide-only"], ["Model", "wide-only"], ["Switches", "right wide-only"], ["Last stall", "right wide-only"]]}>${items.map((one) => html`<tr key=${one.url} aria-selected=${one.url === named ? "true" : undefined}>
    <td class="mono"><a href=${hrefOf(["trajectories"], { engine: one.url })} title="its trajectories">${withoutScheme(one.url)}</a></td><td><span class="chips"><${Badge} status=${one.state} tone=${TONES[one.state] ?? "warn"} />${one.is_drained && html`<${Badge} status="drained" tone="warn" />`}${one.held_seconds !== null && html`<${Badge} status=${`holds calls for ${seconds(one.held_seconds)}`} tone="warn" />`}${one.is_pushed && html`<span class="badge">pushed by its owner</span>`}</span></td>
    <td>v${one.version}${one.behind_seconds > 0 && html` <${Badge} status=${`behind v${one.newest_version} for ${seconds(one.behind_seconds)}`} tone=${one.is_stale ? "bad" : "warn"} />`}</td><td class="wide-only"><a href=${hrefOf(["run", one.run])}>${one.run}</a></td><td class="wide-only cut" title=${one.model}>${shortId(one.model, 24)}</td>
    <td class="right wide-only">${number(one.num_switches)}</td><td class="right wide-only">${seconds(one.stall_seconds)}</td></tr>`)}<//>`;
}

/** @param {{queue: Queue}} props */
function Waiting({ queue }) {
  const most = Math.max(1, ...queue.backlog.map((one) => one.num));
  return html`<div class="halves"><${Card} title="Runs in the queue" flush>${queue.runs.length ? html`<${Table} head=${[["Run"], ["Share", "right"], ["Queued", "right"], ["Runs", "right"], ["Fails", "right"], ["", "right"]]}>${queue.runs.map((one) => html`<tr key=${one.run}>
      <td><a href=${hrefOf(["run", one.run])}>${one.run}</a>${one.paused !== null && html` <${Badge} status="paused" tone="warn" /><br /><span class="quiet tiny">${one.paused}</span>`}${one.is_failing && html` <${Badge} status="failing" tone="bad" />`}</td>
      <td class="right">${number(one.weight)}</td><td class="right">${number(one.num_queued + one.num_delayed)}</td><td class="right">${number(one.num_leased)}${one.quota !== null && html`<span class="quiet"> of ${one.quota}</span>`}</td><td class="right">${percent(one.failure_rate)}</td><td class="right"><${RunOrders} run=${one} /></td></tr>`)}<//>` : html`<${Empty}>No run was submitted to this queue.<//>`}<//>
    <${Card} title="Backlog" more="by what it needs of a worker">${queue.backlog.length ? queue.backlog.map((one) => html`<p class="backlog" key=${one.needs.join()}><span class="chips">${one.needs.length ? one.needs.map((need) => html`<span class="badge" key=${need}>${need}</span>`) : html`<span class="badge">nothing</span>`}</span>
        <${Bar} share=${one.num / most} hue=${one.num_workers ? "--hue-0" : "--hue-4"} /><b class="num">${number(one.num)}</b>${one.num_workers ? html`<span class="quiet tiny">${one.num_workers} ${one.num_workers === 1 ? "worker offers" : "workers offer"} it</span>` : html`<${Badge} status="no worker offers it" tone="bad" />`}</p>`) : html`<p class="small quiet">Nothing waits.</p>`}<//></div>`;
}

/** @param {{run: import("../core/types.js").RunQueue}} props */
function RunOrders({ run }) {
  const { run: name, weight, quota, paused, num_leased: leased } = run;
  const fields = [{ name: "weight", label: "Weight: its leases are in proportion to this", kind: "number", value: weight }, { name: "quota", label: "Quota: most rollouts with workers at once; 0: no limit", kind: "number", step: "1", value: quota ?? 0 }];
  const reasons = [{ name: "why", label: "Why, shown to others", isOptional: true }, { name: "running", label: `Let the ${number(leased)} that run pause at their next step, too`, kind: "checkbox" }];
  return html`<span class="chips orders">${paused === null
      ? html`<${OrderButton} label="Pause" title=${`Pause run ${name}?`} verb="Pause" path=${["runs", name, "pause"]} fields=${reasons} told=${`Workers get no rollout of it until it is resumed. The ${number(run.num_queued + run.num_delayed)} that wait keep their places.`} />`
      : html`<${OrderButton} label="Resume" title=${`Resume run ${name}?`} verb="Resume" path=${["runs", name, "resume"]} told=${`Workers get its rollouts again, ${number(run.num_paused)} paused ones as well. It was paused${paused ? ` because: ${paused}` : " without a reason"}.`} />`}
    <${OrderButton} label="Share" title=${`Share of run ${name}`} verb="Change" path=${["runs", name, "share"]} fields=${fields} told=${`Beside other runs of the same priority it now has the weight ${number(weight)} and ${quota === null ? "no quota" : `a quota of ${quota}`}. Rollouts that run are not stopped.`} /></span>`;
}

/** @param {{queue: Queue}} props */
function Leases({ queue }) {
  const { leases, totals } = queue;
  return html`<${Card} title="Leases" flush more=${leases.length < totals.num_leased ? `${leases.length} of ${totals.num_leased}` : ""}>${leases.length ? html`<${Table} head=${[["Rollout"], ["Status", "wide-only"], ["Worker"], ["Held", "right wide-only"], ["Lapses in", "right"], ["Attempt", "right wide-only"]]}>${leases.map((one) => html`<tr key=${one.rollout_id}>
    <td><a class="mono" href=${hrefOf(["trajectory", one.trajectory_id])} title=${one.rollout_id}>${shortId(one.rollout_id, 24)}</a></td><td class="wide-only"><${Badge} status=${one.status} /></td><td class="mono cut">${shortId(one.worker ?? "–", 20)}</td><td class="right wide-only">${seconds(Math.max(0, queue.now - one.since))}</td><td class="right">${one.is_lapsing ? html`<${Badge} status=${seconds(one.lease_seconds)} tone="bad" />` : seconds(one.lease_seconds)}</td><td class="right wide-only">${one.num_attempts}</td></tr>`)}<//>` : html`<${Empty}>No worker holds a rollout.<//>`}<//>`;
}

/** @param {{items: import("../core/types.js").Box[] | null, now: number | null}} props */
function Boxes({ items, now }) {
  if (items === null) return html`<${Empty}>Sandboxes are not known here.<//>`;
  if (!items.length) return html`<${Empty}>No worker of this machine has a sandbox now.<//>`;
  return html`<${Table} head=${[["Task"], ["Kind"], ["Role"], ["Age", "right"], ["Sandbox", "wide-only"]]}>${items.map((one) => html`<tr key=${one.box}><td>${shortId(one.task, 26)}</td><td>${one.kind}</td><td>${one.role}</td><td class="right">${now === null ? "–" : seconds(Math.max(0, now - one.taken_at))}</td><td class="mono wide-only">${shortId(one.box, 30)}</td></tr>`)}<//>`;
}
