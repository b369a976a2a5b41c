// Trajectories as a table: only the rows in sight exist, whatever the number; j and k walk it, Enter opens.
import { html, useEffect, useRef, useState } from "../core/ui.js";
import { go, hrefOf } from "../core/router.js";
import { useKeys } from "../core/keys.js";
import { windowOf } from "../pure/layout.js";
import { moment, number, seconds, secondsBetween, shortId, versions, withoutScheme } from "../pure/format.js";
import { Badge } from "./basic.js";

/** @typedef {import("../core/types.js").Row} Row */
const ROW_PX = 36;

/** Columns by name: title, cell, and whether it is a number. @type {Record<string, {title: string, cell: (row: Row, href: string) => any, right?: boolean, wide?: boolean, orders?: string[]}>} orders: of the API, by this column */
export const COLUMNS = {
  trajectory: { title: "Trajectory", cell: (row, href) => html`<a class="mono" href=${href} title=${row.trajectory_id}>${shortId(row.trajectory_id, 20)}</a>` },
  task: { title: "Task", cell: (row) => html`<span title=${row.task_id}>${shortId(row.task_id, 22)}</span>`, wide: true },
  type: { title: "Type", cell: (row) => row.task_type, wide: true },
  reward: { title: "Reward", right: true, orders: ["reward"], cell: (row) => html`<span class="num">${number(row.reward)}</span>` },
  status: { title: "Status", cell: (row) => html`<${Badge} status=${row.status} />` },
  policy: { title: "Policy", right: true, orders: ["policy"], cell: (row) => versions(row.policy_min, row.policy_max) },
  steps: { title: "Steps", right: true, cell: (row) => row.num_steps, wide: true },
  duration: { title: "Took", right: true, wide: true, cell: (row) => seconds(secondsBetween(row.started_at, row.ended_at)) },
  started: { title: "Started", orders: ["newest", "oldest"], cell: (row) => moment(row.started_at), wide: true },
  cause: { title: "Cause", cell: (row) => row.cause ?? "", wide: true },
  group: { title: "Group", cell: (row) => row.group_id && html`<a href=${hrefOf(["group", row.group_id])} title=${row.group_id}>${shortId(row.group_id, 14)}</a>`, wide: true },
  worker: { title: "Worker", cell: (row) => row.worker ?? "", wide: true },
  agents: { title: "Agents", cell: (row) => row.agents.join(", "), wide: true },
  findings: { title: "Findings", cell: (row) => row.findings.join(", "), wide: true },
  engines: { title: "Engines", cell: (row) => html`<span title=${row.engines.join(", ")}>${row.engines.map(withoutScheme).join(", ")}</span>`, wide: true },
};
export const USUAL = ["trajectory", "task", "type", "reward", "status", "policy", "steps", "duration", "started"];

/** @param {{rows: Row[], columns: string[], hrefOfRow: (row: Row) => string, onEnd?: () => void, isBound?: boolean, total?: number | null, order?: string, hrefOfOrder?: (order: string) => string}} props
 * total: rows of the query, loaded or not; hrefOfOrder: where the same rows are in another order */
export function TrajectoryTable({ rows, columns, hrefOfRow, onEnd, isBound = true, total, order, hrefOfOrder }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [{ top, height }, setView] = useState({ top: 0, height: 0 });
  const [chosen, setChosen] = useState(-1);
  const { first, end } = windowOf(top, 900, ROW_PX, rows.length);
  const shown = columns.map((name) => COLUMNS[name]).filter((one) => one !== undefined);
  const look = () => box.current && setView({ top: box.current.scrollTop, height: box.current.clientHeight });
  useEffect(() => void look(), [rows.length]);
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
  return html`<div class="vlist scroll-x" ref=${box} tabindex="0" role="region" aria-label="Trajectories" onScroll=${look}>
    <table class="table" aria-rowcount=${rows.length}>
      <thead><tr>${shown.map((one) => html`<${Heading} key=${one.title} column=${one} order=${order} hrefOfOrder=${hrefOfOrder} />`)}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr aria-hidden="true"><td colspan=${shown.length} style=${{ height: `${first * ROW_PX}px`, padding: 0 }}></td></tr>`}
        ${rows.slice(first, end).map((row, at) => html`
          <tr key=${row.trajectory_id} aria-selected=${first + at === chosen ? "true" : "false"} aria-rowindex=${first + at + 1} style=${{ height: `${ROW_PX}px` }}>
            ${shown.map((one) => html`<td key=${one.title} class=${`${classOf(one)} cut`}>${one.cell(row, hrefOfRow(row))}</td>`)}
          </tr>`)}
        ${end < rows.length && html`<tr aria-hidden="true"><td colspan=${shown.length} style=${{ height: `${(rows.length - end) * ROW_PX}px`, padding: 0 }}></td></tr>`}
      </tbody>
    </table></div>${height > 0 && rows.length * ROW_PX > height && html`<p class="seen-rows tiny quiet num">${number(Math.floor(top / ROW_PX) + 1)}–${number(Math.min(rows.length, Math.max(1, Math.floor((top + height) / ROW_PX) - 1)))} of ${number(Math.max(total ?? 0, rows.length))}: scroll the table, or walk it with j and k</p>`}`;
}

/** The head of a column; where the rows can be in its order, a link to that. @param {{column: any, order: string | undefined, hrefOfOrder: ((order: string) => string) | undefined}} props */
function Heading({ column, order, hrefOfOrder }) {
  const { title, orders = [] } = column;
  const at = orders.indexOf(order);
  const sort = at < 0 ? undefined : order === "oldest" ? "ascending" : "descending";
  return html`<th scope="col" class=${classOf(column)} aria-sort=${sort}>${orders.length && hrefOfOrder ? html`<a href=${hrefOfOrder(orders[(at + 1) % orders.length])} title=${`in the order ${orders[(at + 1) % orders.length]}`}>${title}${sort && html`<span aria-hidden="true"> ${sort === "ascending" ? "↑" : "↓"}</span>`}</a>` : title}</th>`;
}

/** @param {{right?: boolean, wide?: boolean}} column */
const classOf = (column) => `${column.right ? "right" : ""} ${column.wide ? "wide-only" : ""}`;
