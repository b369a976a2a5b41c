// Trajectories as a table: only the rows in sight exist, whatever the number; j and k walk it, Enter opens.
import { html, useEffect, useRef, useState } from "../core/ui.js";
import { go, hrefOf } from "../core/router.js";
import { useKeys } from "../core/keys.js";
import { windowOf } from "../pure/layout.js";
import { moment, number, seconds, epoch, shortId, versions, withoutScheme } from "../pure/format.js";
import { Badge } from "./basic.js";

/** @typedef {import("../core/types.js").Row} Row */
const ROW_PX = 36;

/** Columns by name: title, cell, and whether it is a number. @type {Record<string, {title: string, cell: (row: Row, href: string) => any, right?: boolean, wide?: boolean}>} */
export const COLUMNS = {
  trajectory: { title: "Trajectory", cell: (row, href) => html`<a class="mono" href=${href} title=${row.trajectory_id}>${shortId(row.trajectory_id, 20)}</a>` },
  task: { title: "Task", cell: (row) => html`<span title=${row.task_id}>${shortId(row.task_id, 22)}</span>`, wide: true },
  type: { title: "Type", cell: (row) => row.task_type, wide: true },
  reward: { title: "Reward", right: true, cell: (row) => html`<span class="num">${number(row.reward)}</span>` },
  status: { title: "Status", cell: (row) => html`<${Badge} status=${row.status} />` },
  policy: { title: "Policy", right: true, cell: (row) => versions(row.policy_min, row.policy_max), wide: true },
  steps: { title: "Steps", right: true, cell: (row) => row.num_steps, wide: true },
  duration: { title: "Took", right: true, wide: true, cell: (row) => seconds(spentBy(row)) },
  started: { title: "Started", cell: (row) => moment(row.started_at), wide: true },
  cause: { title: "Cause", cell: (row) => row.cause ?? "", wide: true },
  group: { title: "Group", cell: (row) => row.group_id && html`<a href=${hrefOf(["group", row.group_id])} title=${row.group_id}>${shortId(row.group_id, 14)}</a>`, wide: true },
  worker: { title: "Worker", cell: (row) => row.worker ?? "", wide: true },
  agents: { title: "Agents", cell: (row) => row.agents.join(", "), wide: true },
  findings: { title: "Findings", cell: (row) => row.findings.join(", "), wide: true },
  engines: { title: "Engines", cell: (row) => html`<span title=${row.engines.join(", ")}>${row.engines.map(withoutScheme).join(", ")}</span>`, wide: true },
};
export const USUAL = ["trajectory", "task", "type", "reward", "status", "policy", "steps", "duration", "started"];

/** @param {Row} row */
function spentBy(row) {
  const [from, to] = [epoch(row.started_at), epoch(row.ended_at)];
  return from === null || to === null ? null : to - from;
}

/** @param {{rows: Row[], columns: string[], hrefOfRow: (row: Row) => string, onEnd?: () => void, isBound?: boolean}} props */
export function TrajectoryTable({ rows, columns, hrefOfRow, onEnd, isBound = true }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [top, setTop] = useState(0);
  const [chosen, setChosen] = useState(-1);
  const { first, end } = windowOf(top, 900, ROW_PX, rows.length);
  const shown = columns.map((name) => COLUMNS[name]).filter((one) => one !== undefined);
  useEffect(() => void (end >= rows.length && onEnd?.()), [end, rows.length]);
  /** @param {number} by */
  const move = (by) => {
    const next = Math.min(rows.length - 1, Math.max(0, chosen + by));
    setChosen(next);
    const element = box.current;
    if (element && (next * ROW_PX < element.scrollTop || (next + 3) * ROW_PX > element.scrollTop + element.clientHeight)) element.scrollTop = Math.max(0, (next - 4) * ROW_PX);
  };
  const open = () => rows[chosen] && go(hrefOfRow(/** @type {Row} */ (rows[chosen])));
  useKeys(isBound ? { j: () => move(1), k: () => move(-1), Enter: open } : {});
  return html`<div class="vlist scroll-x" ref=${box} tabindex="0" role="region" aria-label="Trajectories" onScroll=${(/** @type {any} */ event) => setTop(event.target.scrollTop)}>
    <table class="table" aria-rowcount=${rows.length}>
      <thead><tr>${shown.map((one) => html`<th scope="col" key=${one.title} class=${classOf(one)}>${one.title}</th>`)}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr aria-hidden="true"><td colspan=${shown.length} style=${{ height: `${first * ROW_PX}px`, padding: 0 }}></td></tr>`}
        ${rows.slice(first, end).map((row, at) => html`
          <tr key=${row.trajectory_id} aria-selected=${first + at === chosen ? "true" : "false"} aria-rowindex=${first + at + 1} style=${{ height: `${ROW_PX}px` }}>
            ${shown.map((one) => html`<td key=${one.title} class=${`${classOf(one)} cut`}>${one.cell(row, hrefOfRow(row))}</td>`)}
          </tr>`)}
        ${end < rows.length && html`<tr aria-hidden="true"><td colspan=${shown.length} style=${{ height: `${(rows.length - end) * ROW_PX}px`, padding: 0 }}></td></tr>`}
      </tbody>
    </table></div>`;
}

/** @param {{right?: boolean, wide?: boolean}} column */
const classOf = (column) => `${column.right ? "right" : ""} ${column.wide ? "wide-only" : ""}`;
