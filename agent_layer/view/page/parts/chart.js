// A line chart over steps or positions, by uPlot, in the colours of the theme; described in words for screen readers.
import { html, useEffect, useRef } from "../core/ui.js";
import { token } from "../core/theme.js";
import { useTheme } from "../core/use_theme.js";
import { number } from "../pure/format.js";

/** Distances of marks on the axis of steps or positions: whole numbers. */
const WHOLE = [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5, 6].map((power) => one * 10 ** power)).sort((a, b) => a - b);

/** @typedef {{label: string, values: (number | null)[], hue: string, points?: boolean, fill?: boolean, dash?: boolean, isSpanned?: boolean}} Series */

/** @param {{x: number[], series: Series[], height?: number, range?: [number, number] | undefined, label: string, onPick?: (at: number) => void, format?: (value: number) => string, place?: (x: number) => string}} props
 * place: what a point of the axis is called */
export function Chart({ x, series, height = 190, range, label, onPick, format = number, place: called = (step) => `step ${step}` }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const pick = useRef(onPick);
  pick.current = onPick;
  const theme = useTheme();
  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    let remove = () => {};
    const shown = new AbortController();
    const draw = async () => {
      const { default: uPlot } = await import("../vendor/uPlot.js"); // it is large, and takes its time to begin: words are on the screen before
      if (shown.signal.aborted) return;
      const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
      const options = optionsOf({ series, height, range, width: element.clientWidth, format });
      options.hooks = { setCursor: [(/** @type {any} */ now) => point(now, tip, x, series, called, format)] };
      const chart = new uPlot(options, [x, ...series.map((one) => one.values)], element);
      chart.over.append(tip);
      chart.over.addEventListener("click", () => typeof chart.cursor.idx === "number" && pick.current?.(chart.cursor.idx));
      const resized = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height }));
      resized.observe(element);
      remove = () => {
        resized.disconnect();
        chart.destroy();
      };
    };
    void draw();
    return () => {
      shown.abort();
      remove();
    };
  }, [x, series, height, theme]);
  return html`<figure class="chart" role="img" aria-label=${label} ref=${place} style=${{ height: `${height}px` }}></figure>`;
}

/** @param {{series: Series[], height: number, width: number, range: [number, number] | undefined, format: (value: number) => string}} told @returns {any} */
function optionsOf({ series, height, width, range, format }) {
  const axis = { stroke: token("--ink-3"), grid: { stroke: token("--line"), width: 1 }, ticks: { show: false }, font: `11px ${token("--font")}` };
  return {
    width,
    height,
    padding: [8, 8, 0, 0],
    cursor: { y: false, points: { size: 9 }, move: snapped },
    legend: { show: false },
    scales: { x: { time: false }, y: range ? { range } : {} },
    axes: [{ ...axis, grid: { show: false }, size: 26, incrs: WHOLE }, { ...axis, size: 46, space: 24, values: (/** @type {any} */ _, /** @type {number[]} */ marks) => marks.map((one) => format(one)) }],
    series: [{}, ...series.map((one) => styleOf(one))],
  };
}

/** The cursor stands on a point, never between two. @param {any} chart @param {number} left @param {number} top */
function snapped(chart, left, top) {
  return left < 0 ? [left, top] : [chart.valToPos(chart.data[0][chart.posToIdx(left)], "x"), top];
}

/** Show the values of the point under the cursor, beside it. @param {any} chart @param {HTMLElement} tip @param {number[]} x @param {Series[]} series
 * @param {(x: number) => string} called @param {(value: number) => string} format */
function point({ cursor, over, valToPos }, tip, x, series, called, format) {
  const at = cursor.left < 0 ? null : cursor.idx;
  const known = typeof at === "number" ? series.filter((one) => (one.values[at] ?? null) !== null) : [];
  tip.hidden = !known.length;
  if (!known.length) return;
  const left = valToPos(x[at], "x");
  const isRight = left > over.clientWidth / 2;
  Object.assign(tip.style, { left: `${left}px`, transform: `translateX(${isRight ? "calc(-100% - 10px)" : "10px"})` });
  tip.replaceChildren(called(x[at] ?? 0), ...known.map((one) => {
    const line = document.createElement("span");
    const mark = Object.assign(document.createElement("i"), { className: "swatch" });
    mark.style.color = token(one.hue);
    line.append(mark, `${one.label} `, Object.assign(document.createElement("b"), { textContent: format(/** @type {number} */ (one.values[at])) }));
    return line;
  }));
}

/** @param {Series} one */
function styleOf(one) {
  const colour = token(one.hue);
  const isLine = !one.points;
  const points = one.points ? { show: true, size: 8, fill: token("--card"), stroke: colour, width: 2 } : { size: 5, fill: colour }; // uPlot draws these where they are few, so a value between gaps is seen
  return { label: one.label, stroke: colour, width: isLine ? 2 : 0, points, spanGaps: one.fill === true || one.isSpanned === true, ...(one.dash && { dash: [7, 4] }), ...(one.fill && { fill: `${colour}1f` }) };
}

/** Names of series, each beside a mark that looks like its own: an area, a dashed line, hollow points.
 * @param {{series: {label: string, hue: string, dash?: boolean, points?: boolean}[]}} props */
export const Legend = ({ series }) =>
  html`<div class="legend">${series.map((one) => html`<span key=${one.label}><i class=${`swatch ${one.dash ? "dashed" : one.points ? "hollow" : ""}`} style=${{ color: `var(${one.hue})` }}></i>${one.label}</span>`)}</div>`;
