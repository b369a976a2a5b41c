// Find trajectories: the CLI's filters and names, facets with counts, a histogram of rewards, the same query as a command.
import { html, useEffect, useState } from "../core/ui.js";
import { changed, go, hrefOf } from "../core/router.js";
import { get, pathOf, useResource } from "../core/api.js";
import { useKeys } from "../core/keys.js";
import { useRights } from "../core/writes.js";
import { Await, Card, CopyLine, Empty, PageHead } from "../parts/basic.js";
import { Matches } from "../parts/matches.js";
import { COLUMNS, TrajectoryTable, USUAL } from "../parts/trajectory_table.js";
import { filtersOf, rowsPath } from "../pure/first.js";
import { number, withoutScheme } from "../pure/format.js";

/** @typedef {import("../core/types.js").Row} Row */
/** @typedef {{value: any, count: number}} FacetLine */
const FACETS = ["run", "split", "task_type", "status", "cause", "agent", "tool", "finding", "engine", "policy"];
const FACET_LINES = 8;

/** @param {{route: import("../core/router.js").Route}} props */
export function TrajectoriesView({ route }) {
  const { query } = route;
  const filters = filtersOf(query);
  const plain = new URLSearchParams(filters);
  plain.delete("order");
  const facets = useResource(pathOf(["facets"], plain));
  const histogram = useResource(pathOf(["histogram"], new URLSearchParams([...plain, ["bins", innerWidth > 640 ? "20" : "12"]]))); // each bar is wide enough for a finger
  const columns = query.get("columns")?.split(",") ?? USUAL;
  const { cooled_runs: cooled } = useRights();
  return html`<${PageHead} title="Trajectories"><a class="chip" href=${hrefOf(["failures"], plain)}>failures</a><a class="chip" href=${hrefOf(["review"], filters)}>review</a><span class="quiet num">${facets.data && html`<span data-count>${number(facets.data.count)}</span> ${facets.data.count === 1 ? "trajectory" : "trajectories"}`}</span><//>
    <${SearchBar} query=${query} />
    ${!query.get("run") && cooled.length > 0 && html`<p class="note-box" data-cooled>Not here, because only the bucket has them: ${cooled.map((run) => html`<a class="chip" key=${run} href=${hrefOf(["trajectories"], changed(query, { run }))}>${run}</a> `)}</p>`}
    <div class="browse">
      <details class="facets-box" open=${innerWidth > 900}><summary class="small">Filters</summary><${Await} resource=${facets}>${(/** @type {any} */ data) => html`<${Facets} facets=${data.facets} query=${query} />`}<//></details>
      <div class="step-list">
        <${Card} title="Reward" more="click a bar to filter"><${Await} resource=${histogram}>${(/** @type {any} */ data) => html`<${Histogram} data=${data} query=${query} />`}<//><//>
        ${query.get("text") ? html`<${Matches} filters=${filters} text=${query.get("text") ?? ""} />` : html`<${Found} filters=${filters.toString()} columns=${columns} query=${query} total=${facets.data?.count ?? null} />`}
      </div></div>`;
}

/** @param {{query: URLSearchParams}} props */
function SearchBar({ query }) {
  /** @param {string} name @param {string | null} value */
  const put = (name, value) => go(hrefOf(["trajectories"], changed(query, { [name]: value })));
  useKeys({ w: () => /** @type {HTMLElement | null} */ (document.querySelector("[data-words]"))?.focus() });
  const active = [...query].filter(([name]) => !["columns", "order"].includes(name));
  return html`<div class="step-list" style=${{ gap: "8px" }}><div class="searchbar" role="search">
      <${Typed} class="field wide" data-search placeholder="Task id ( / )" aria-label="Task id" value=${query.get("task")} put=${(/** @type {string} */ task) => put("task", task)} />
      ${[["reward", "Reward 0.5.."], ["policy", "Policy 3..8"], ["since", "Since 2h"]].map(([name = "", hint]) => html`<${Typed} key=${name} class="field" size="11" placeholder=${hint} aria-label=${hint} value=${query.get(name)} put=${(/** @type {string} */ value) => put(name, value)} />`)}
      <${Typed} class="field wide" type="search" placeholder="Words inside ( w )" aria-label="Words inside" data-words value=${query.get("text")} put=${(/** @type {string} */ text) => put("text", text.trim() || null)} />
      <select class="field" aria-label="Order" value=${query.get("order") ?? "newest"} onChange=${(/** @type {any} */ event) => put("order", event.target.value)}>${["newest", "oldest", "reward", "policy"].map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select>
      <button class="chip" aria-pressed=${query.get("accepted") === "1"} onClick=${() => put("accepted", query.get("accepted") ? null : "1")}>accepted</button>
    </div>
    ${active.length > 0 && html`<div class="chips">${active.map(([name, value]) => html`<a class="chip on" key=${name} href=${hrefOf(["trajectories"], changed(query, { [name]: null }))} aria-label=${`Remove the filter ${name}`}>${name} = ${value} ×</a>`)}</div>`}</div>`;
}

/** A field that keeps what is typed while the page is drawn again, and puts it when the reader is done.
 * @param {{value: string | null, put: (value: string) => void, [attribute: string]: any}} props */
function Typed({ value, put, ...attributes }) {
  const [typed, setTyped] = useState(value ?? "");
  useEffect(() => setTyped(value ?? ""), [value]);
  return html`<input ...${attributes} value=${typed} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} onChange=${(/** @type {any} */ event) => put(event.target.value)} />`;
}

/** @param {{facets: Record<string, FacetLine[]>, query: URLSearchParams}} props */
const Facets = ({ facets, query }) => html`<div class="facets">${FACETS.filter((name) => facets[name]?.length).map((name) => html`<${Facet} key=${name} name=${name} lines=${facets[name]?.filter((one) => one.value !== null)} query=${query} />`)}</div>`;

/** The most frequent values of a field, of the policy the newest; the one that is filtered by, and on demand all others. Its own filter does not
 * count here, so that the others can be chosen in its place.
 * @param {{name: string, lines: FacetLine[], query: URLSearchParams}} props */
function Facet({ name, lines, query }) {
  const [isWhole, setWhole] = useState(false);
  const asked = query.get(name);
  const others = new URLSearchParams(filtersOf(query));
  for (const one of ["order", name]) others.delete(one);
  const beside = useResource(asked === null ? null : pathOf(["facets"], new URLSearchParams([...others, ["fields", name]])));
  const all = [.../** @type {FacetLine[]} */ (beside.data?.facets[name] ?? lines)].filter((one) => one.value !== null);
  if (name === "policy") all.sort((a, b) => b.value - a.value);
  const shown = all.filter((one, at) => isWhole || at < FACET_LINES || String(one.value) === asked);
  const title = name.replace("_", " ");
  return html`<div class="facet" data-facet=${name}><h2>${title}</h2>${shown.map(({ value, count }) => {
    const isOn = asked === String(value);
    return html`<a key=${value} class=${isOn ? "on" : ""} href=${hrefOf(["trajectories"], changed(query, { [name]: isOn ? null : value }))}><span class="cut" title=${value}>${name === "policy" ? "v" : ""}${name === "engine" ? withoutScheme(value) : value}</span><span class="count num">${number(count)}</span></a>`;
  })}${all.length > FACET_LINES && (isWhole || shown.length < all.length) && html`<button class="unfold" aria-expanded=${isWhole} aria-label=${isWhole ? `Fewer values of ${title}` : `${all.length - shown.length} more values of ${title}`} onClick=${() => setWhole(!isWhole)}>${isWhole ? "fewer" : `${number(all.length - shown.length)} more`}</button>`}</div>`;
}

/** @param {{data: {bins: {low: number | null, high: number | null, count: number, filters: Record<string, string>}[], num_without: number}, query: URLSearchParams}} props */
function Histogram({ data, query }) {
  const most = Math.max(1, ...data.bins.map((bin) => bin.count));
  if (!data.bins.length) return html`<p class="small quiet">No trajectory here has a reward.</p>`;
  return html`<div class="histogram" role="group" aria-label="Histogram of rewards">${data.bins.map((bin) => {
    const reward = bin.filters.reward ?? null;
    const isOn = query.get("reward") === reward;
    const told = `${bin.count} with a reward of ${bin.low === null ? "less" : number(bin.low)} to ${bin.high === null ? "more" : number(bin.high)}`;
    return html`<a key=${bin.low} class=${isOn ? "on" : bin.count ? "" : "none"} href=${hrefOf(["trajectories"], changed(query, { reward: isOn ? null : reward }))} title=${told} aria-label=${told}><i style=${{ height: `${(100 * bin.count) / most}%` }}></i></a>`;
  })}</div><div class="axis num"><span>${number(data.bins[0]?.low)}</span>${data.num_without > 0 && html`<span>${number(data.num_without)} without a reward</span>`}${data.bins.length > 1 && html`<span>${number(data.bins.at(-1)?.low)}</span>`}</div>`;
}

/** @param {{filters: string, columns: string[], query: URLSearchParams, total: number | null}} props */
function Found({ filters, columns, query, total }) {
  const path = rowsPath(filters);
  const first = useResource(path);
  const [more, setMore] = useState(/** @type {{path: string, rows: Row[], cursor: string | null} | null} */ (null));
  const mine = more?.path === path ? more : null;
  const cursor = mine ? mine.cursor : first.data?.cursor;
  const extend = async () => {
    if (!cursor) return;
    const page = await get(`${path}&cursor=${encodeURIComponent(cursor)}`);
    setMore((old) => ({ path, rows: [...(old?.path === path ? old.rows : []), ...page.items], cursor: page.cursor }));
  };
  return html`<${Await} resource=${first}>${(/** @type {import("../core/types.js").Page<Row>} */ data) => html`
    <${Card} title="Found" flush more=${html`<${ColumnChoice} columns=${columns} query=${query} />`}>
      ${data.items.length ? html`<${TrajectoryTable} rows=${[...data.items, ...(mine?.rows ?? [])]} columns=${columns} onEnd=${extend} total=${total} order=${query.get("order") ?? "newest"} hrefOfOrder=${(/** @type {string} */ order) => hrefOf(["trajectories"], changed(query, { order: order === "newest" ? null : order }))} hrefOfRow=${(/** @type {Row} */ row) => hrefOf(["trajectory", row.trajectory_id], { of: filters })} />` : html`<${Empty}>No trajectory matches. Remove a filter above.<//>`}<//>
    <${Card} title="The same query"><${CopyLine} label="Command" text=${data.command} /><${CopyLine} label="Python" text=${data.python} /><//>`}<//>`;
}

/** @param {{columns: string[], query: URLSearchParams}} props */
function ColumnChoice({ columns, query }) {
  return html`<details class="fold"><summary>Columns</summary><div class="chips">${Object.keys(COLUMNS).map((name) => {
    const kept = columns.includes(name) ? columns.filter((one) => one !== name) : [...columns, name];
    return html`<a key=${name} class=${`chip ${columns.includes(name) ? "on" : ""}`} href=${hrefOf(["trajectories"], changed(query, { columns: kept.join(",") }))}>${COLUMNS[name]?.title}</a>`;
  })}</div></details>`;
}
