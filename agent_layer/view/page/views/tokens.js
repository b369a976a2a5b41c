// Tokens of a trajectory, coloured by what is known of each; only the rows in sight exist, so that 128 k of them stay quick.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../core/ui.js";
import { go } from "../core/router.js";
import { get } from "../core/api.js";
import { Card, Empty, Failure } from "../parts/basic.js";
import { Chart } from "../parts/chart.js";
import { classOfTint, shadesOf, tintAroundZero, tintOfLogprob, tintOfMask, tintOfShade } from "../pure/colour.js";
import { tokensPath } from "../pure/first.js";
import { number, signed, withoutScheme } from "../pure/format.js";
import { windowOf } from "../pure/layout.js";
import { appended, bucketMeans, noColumns, ratioAt, rowStarts, visible } from "../pure/tokens.js";

/** @typedef {import("../pure/tokens.js").Columns} Columns */
const ROW_PX = 24;
const CHARACTER_PX = 7.9;

/** Nats between trainer and engine from which a token has its full colour: the alarm logprob_gap stops a run there. */
export const GAP_LIMIT = 0.2;

/** How tokens can be coloured: a tint and a value for the curve of each position.
 * @type {Record<string, {title: string, told: string, unit: string, least?: number, value: (columns: Columns, at: number) => number | null, tint: (columns: Columns, at: number) => import("../pure/colour.js").Tint}>} */
const MODES = {
  logprob: { title: "Log-probability", told: "Stronger: less likely, as the engine sampled it; full from −5", unit: "nats", value: (all, at) => all.logprobs[at] ?? null, tint: (all, at) => tintOfLogprob(all.logprobs[at]) },
  ratio: { title: "Trainer − engine", told: `Blue: likelier for the trainer; orange: for the engine; full from ${GAP_LIMIT} nats, where the alarm logprob_gap stops a run`, unit: "nats", least: GAP_LIMIT, value: ratioAt, tint: (all, at) => tintAroundZero(ratioAt(all, at), GAP_LIMIT) },
  mask: { title: "Loss mask", told: "Green: in the loss; grey: left out", unit: "1: in the loss", value: (all, at) => all.mask[at] ?? null, tint: (all, at) => tintOfMask(all.mask[at]) },
  version: { title: "Policy version", told: "A colour for each version", unit: "version", value: (all, at) => all.versions[at] ?? null, tint: (all, at) => tintOfShade(shadesIn(all).get(all.versions[at] ?? -1)) },
  advantage: { title: "Advantage", told: "Blue: made likelier; orange: less likely; full from 2", unit: "", value: (all, at) => all.advantages[at] ?? null, tint: (all, at) => tintAroundZero(all.advantages[at], 2) },
};

/** @type {WeakMap<Columns, ReturnType<typeof shadesOf>>} */
const shades = new WeakMap();

/** Shades of the versions that sampled these tokens. @param {Columns} columns */
function shadesIn(columns) {
  const found = shades.get(columns) ?? shadesOf(columns.versions);
  shades.set(columns, found);
  return found;
}

/** Load all tokens, page by page; the first page shows at once. @param {string} id @param {string} changes */
function useTokens(id, changes) {
  const [state, setState] = useState({ id: "", columns: noColumns(), total: 0, parts: /** @type {import("../core/types.js").Part[]} */ ([]), error: /** @type {any} */ (null), isWhole: false });
  useLayoutEffect(() => {
    const abort = new AbortController();
    const load = async () => {
      let columns = noColumns();
      let shown = 0;
      for (let from = 0, total = 1; from < total; from = columns.ids.length) {
        const page = await get(tokensPath(id, from), abort.signal);
        columns = appended(columns, page);
        total = page.ids.length ? page.total : 0;
        const isWhole = !total || columns.ids.length >= total;
        if (!isWhole && columns.ids.length < 2 * shown) continue; // each time all rows are laid out again, and the curve is drawn
        shown = columns.ids.length;
        setState({ id, columns, total: page.total, parts: page.parts, error: null, isWhole });
      }
    };
    load().catch((error) => abort.signal.aborted || setState((old) => ({ ...old, id, error })));
    return () => abort.abort();
  }, [id, changes]);
  return state.id === id ? state : null;
}

/** @param {{data: import("../core/types.js").Trajectory, route: import("../core/router.js").Route, to: (changes: any) => string}} props */
export function TokensTab({ data, route, to }) {
  const state = useTokens(data.row.trajectory_id, `${data.num_given + data.num_sampled} ${data.updates.length}`);
  const name = route.query.get("colour") ?? "logprob";
  const mode = MODES[name] ?? MODES.logprob;
  const [at, setAt] = useState(-1);
  const wanted = route.query.get("step");
  useEffect(() => {
    const part = state?.parts.find((one) => String(one.step) === wanted);
    if (part) setAt(part.start + part.num_given);
  }, [wanted, state?.parts.length]);
  if (!state) return html`<div class="loading" role="status" aria-label="Loading"></div>`;
  if (state.error) return html`<${Failure} error=${state.error} />`;
  if (!state.total) return html`<div class="card"><${Empty}>No token ids were captured: the engine was called without them (capture level text).<//></div>`;
  return html`<div class="token-tools"><div class="chips" role="group" aria-label="Colour by">${Object.entries(MODES).map(([key, one]) => html`<button key=${key} class="chip" aria-pressed=${key === name} onClick=${() => go(to({ colour: key }), { replace: true })}>${one.title}</button>`)}</div>
      <${Scale} name=${name} columns=${state.columns} told=${mode?.told} /></div>
    <div class="token-desk"><${Curve} columns=${state.columns} mode=${mode} title=${mode?.title ?? ""} onPick=${setAt} />
    <${Card} title="Tokens" flush more=${`${number(data.num_sampled)} sampled, ${number(state.total)} in all${state.isWhole ? "" : ", loading …"}`}><${Grid} columns=${state.columns} mode=${mode} at=${at} onPick=${setAt} /><//>
    <${Facts} columns=${state.columns} at=${at} steps=${data.steps} /></div>`;
}

/** @param {{columns: Columns, mode: any, title: string, onPick: (at: number) => void}} props */
function Curve({ columns, mode, title, onPick }) {
  const { x, series } = useMemo(() => {
    const { x, y } = bucketMeans(columns.ids.map((_, at) => mode.value(columns, at)), 1200);
    return { x, series: [{ label: title, values: y, hue: "--hue-0" }] };
  }, [columns, mode]);
  const known = (series[0]?.values ?? []).filter((one) => one !== null);
  const range = mode.least && /** @type {[number, number]} */ ([Math.min(-mode.least, ...known), Math.max(mode.least, ...known)]);
  return html`<${Card} title=${`${title} by position`} more=${mode.unit}>${known.length ? html`<${Chart} x=${x} series=${series} height=${120} range=${range} place=${(/** @type {number} */ at) => `position ${at}`} label=${`${title} over ${columns.ids.length} positions`} onPick=${(/** @type {number} */ at) => onPick(x[at] ?? 0)} />` : html`<p class="small quiet">Not known for this trajectory: no update has stored it.</p>`}<//>`;
}

/** @param {{columns: Columns, mode: any, at: number, onPick: (at: number) => void}} props */
function Grid({ columns, mode, at, onPick }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 600, width: 1100 });
  const width = Math.max(24, Math.floor((view.width - 100) / CHARACTER_PX));
  const starts = useMemo(() => rowStarts(columns, width), [columns, width]);
  const rows = starts.length - 1;
  useEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    const measure = () => setView((old) => ({ ...old, height: element.clientHeight, width: element.clientWidth }));
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const element = box.current;
    if (at < 0 || !element) return;
    const row = rowOf(starts, at);
    if (row * ROW_PX < element.scrollTop || (row + 1) * ROW_PX > element.scrollTop + element.clientHeight) element.scrollTop = Math.max(0, row * ROW_PX - element.clientHeight / 2);
  }, [at, starts]);
  const scrolled = (/** @type {number} */ top) => {
    const row = Math.floor(top / ROW_PX) * ROW_PX;
    setView((old) => (old.top === row ? old : { ...old, top: row }));
  };
  const { first, end } = windowOf(view.top, view.height, ROW_PX, rows, 4);
  const lines = useRef(/** @type {HTMLElement | null} */ (null));
  const placed = useRef(/** @type {Map<number, Line>} */ (new Map()));
  useLayoutEffect(() => {
    placed.current = placedLines(/** @type {HTMLElement} */ (lines.current), placed.current, { columns, mode, starts, first, end });
  }, [columns, mode, starts, first, end]);
  useLayoutEffect(() => {
    const chosen = at < 0 ? null : lines.current?.querySelector(`#t${at}`);
    choose(chosen, true);
    return () => choose(chosen, false);
  }, [at, columns, mode, starts, first, end]);
  return html`<div class="token-grid" style=${{ height: `min(56vh, ${rows * ROW_PX + 8}px)` }} ref=${box} tabindex="0" data-own-keys role="listbox" aria-label="Tokens; arrow keys walk them" aria-activedescendant=${at >= 0 ? `t${at}` : undefined}
      onScroll=${(/** @type {any} */ event) => scrolled(event.target.scrollTop)} onMouseMove=${(/** @type {any} */ event) => pointed(event, onPick)} onKeyDown=${(/** @type {any} */ event) => stepped(event, at, columns.ids.length, onPick)}>
      <div role="presentation" ref=${lines} style=${{ height: `${rows * ROW_PX}px` }}></div></div>`;
}

/** @typedef {{element: HTMLElement, columns: Columns, mode: any, from: number, to: number}} Line */

/** Put the rows of a window into their box, in order, and return them. A row that stays is not touched: were it moved, the browser would lay it out again.
 * @param {HTMLElement} box @param {Map<number, Line>} old @param {{columns: Columns, mode: any, starts: Uint32Array, first: number, end: number}} told @returns {Map<number, Line>} */
function placedLines(box, old, { columns, mode, starts, first, end }) {
  /** @type {Map<number, Line>} */ const lines = new Map();
  let next = /** @type {HTMLElement | null} */ (null);
  for (let row = end - 1; row >= first; row--) {
    const [from = 0, to = 0] = starts.subarray(row, row + 2);
    const known = old.get(row);
    if (known && known.columns === columns && known.mode === mode && known.from === from && known.to === to) lines.set(row, known);
    else {
      const element = lineOf(columns, mode, from, to);
      element.style.top = `${row * ROW_PX}px`;
      box.insertBefore(element, next);
      lines.set(row, { element, columns, mode, from, to });
    }
    next = lines.get(row)?.element ?? null;
  }
  for (const [row, line] of old) if (lines.get(row) !== line) line.element.remove();
  return lines;
}

/** A row of tokens, which are copies of one element. @param {Columns} columns @param {any} mode @param {number} from @param {number} to @returns {HTMLElement} */
function lineOf(columns, mode, from, to) {
  const line = document.createElement("div");
  line.className = "token-row";
  line.role = "presentation";
  const start = document.createElement("span");
  start.className = "gut num";
  start.ariaHidden = "true";
  start.textContent = String(from);
  const pattern = document.createElement("span");
  pattern.role = "option";
  pattern.ariaSelected = "false";
  const tokens = [start];
  for (let at = from; at < to; at++) {
    const token = /** @type {HTMLElement} */ (pattern.cloneNode());
    const isSampled = columns.sampled[at] === 1;
    token.id = `t${at}`;
    token.className = `t${isSampled ? "" : " given"}${isSampled || columns.mask[at] !== null ? classOfTint(mode.tint(columns, at)) : ""}`;
    token.append(visible(columns.texts[at] ?? null, columns.ids[at] ?? 0));
    tokens.push(token);
  }
  line.append(...tokens);
  return line;
}

/** @param {Element | null | undefined} token @param {boolean} isOn */
function choose(token, isOn) {
  if (!token) return;
  token.classList.toggle("on", isOn);
  token.ariaSelected = String(isOn);
}

/** The pointer moved: a token that comes under it by a scroll is not chosen. @param {any} event @param {(at: number) => void} onPick */
function pointed(event, onPick) {
  if (event.target.role === "option") onPick(Number(event.target.id.slice(1)));
}

/** @param {KeyboardEvent} event @param {number} at @param {number} total @param {(at: number) => void} onPick */
function stepped(event, at, total, onPick) {
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 20, ArrowUp: -20 }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  onPick(Math.min(total - 1, Math.max(0, at + by)));
}

/** The row of a token, by bisection. @param {Uint32Array} starts @param {number} at */
function rowOf(starts, at) {
  let [low, high] = [0, starts.length - 1];
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    if ((starts[middle] ?? 0) <= at) low = middle;
    else high = middle;
  }
  return low;
}

/** @param {{columns: Columns, at: number, steps: import("../core/types.js").Step[]}} props */
function Facts({ columns, at, steps }) {
  const isChosen = at >= 0 && at < columns.ids.length;
  const engine = steps[columns.steps[at] ?? -1]?.engine ?? null;
  /** @type {[string, any][]} */
  const facts = isChosen ? [["Position", number(at)], ["Id", columns.ids[at]], ["Text", JSON.stringify(columns.texts[at])], ["Step", `${columns.steps[at]}, ${columns.sampled[at] ? "sampled" : "given"}`], ["Log-probability", number(columns.logprobs[at], 4)], ["Trainer's", number(columns.trained_logprobs[at], 4)],
    ["Trainer − engine", signed(ratioAt(columns, at), 4)], ["Advantage", signed(columns.advantages[at], 3)], ["In the loss", columns.mask[at] === null ? "–" : columns.mask[at] ? "yes" : "no"], ["Policy", columns.versions[at] === null ? "–" : `v${columns.versions[at]}`],
    ["Engine", engine ? withoutScheme(engine) : "–"]] : [];
  return html`<${Card} title="Token" class="docked"><div aria-live="polite">${isChosen ? html`<dl class="token-facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd data-fact=${name} title=${value}>${value}</dd></div>`)}</dl>` : html`<p class="small quiet">Point at a token, or walk with the arrow keys.</p>`}</div><//>`;
}

/** @param {{name: string, columns: Columns, told: string | undefined}} props */
function Scale({ name, columns, told }) {
  if (name === "version") return html`<div class="legend">${[...shadesIn(columns)].map(([version, shade]) => html`<span key=${version}><i class=${`swatch${classOfTint(tintOfShade(shade))}`}></i>v${version}</span>`)}</div>`;
  return html`<span class="tiny quiet">${told}</span>`;
}
