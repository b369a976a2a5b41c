// Tokens of a trajectory as columns, laid out in rows of a fixed number of characters.

/** @typedef {{ids: number[], texts: (string | null)[], sampled: number[], steps: number[], logprobs: (number | null)[],
 *   trained_logprobs: (number | null)[], advantages: (number | null)[], mask: (0 | 1 | null)[], versions: (number | null)[]}} Columns */

const NAMES = /** @type {const} */ (["ids", "texts", "sampled", "steps", "logprobs", "trained_logprobs", "advantages", "mask", "versions"]);
const WIDEST = 40;
const PLAIN = /^[ -~]{1,40}$/; // nearly all tokens: nothing to replace, nothing to cut

/** @returns {Columns} */
export const noColumns = () => ({ ids: [], texts: [], sampled: [], steps: [], logprobs: [], trained_logprobs: [], advantages: [], mask: [], versions: [] });

/** Return columns with a page of tokens behind them. @param {Columns} columns @param {Columns} page @returns {Columns} */
export function appended(columns, page) {
  const joined = /** @type {any} */ ({});
  for (const name of NAMES) joined[name] = columns[name].concat(/** @type {any} */ (page[name]));
  return joined;
}

/** A page of tokens from one position up to another, as far as it has them.
 * @template {Columns & {begin: number, end: number}} T @param {T} page @param {number} from @param {number} to @returns {T} */
export function slicedTokens(page, from, to) {
  if (from <= page.begin && to >= page.end) return page;
  const columns = Object.fromEntries(NAMES.map((name) => [name, page[name].slice(from - page.begin, to - page.begin)]));
  const begin = Math.min(from, page.end);
  return { ...page, ...columns, begin, end: begin + (columns.ids?.length ?? 0) };
}

/** A token as visible text: spaces at line ends and control characters get a sign, an unknown text its id.
 * @param {string | null} text @param {number} id @returns {string} */
export function visible(text, id) {
  if (text === null) return `⟨${id}⟩`;
  if (PLAIN.test(text)) return text;
  const shown = text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/\r/g, "␍").replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, "␦");
  return shown === "" ? "∅" : shown.length > WIDEST ? `${shown.slice(0, WIDEST - 1)}…` : shown;
}

/** Break tokens into rows: at the width, behind a line end, and where the next step begins.
 * @param {Columns} columns @param {number} width characters of a row @returns {Uint32Array} start of each row, then the number of tokens */
export function rowStarts(columns, width) {
  const starts = [0];
  let used = 0;
  for (let at = 0; at < columns.ids.length; at++) {
    const text = columns.texts[at] ?? null;
    const size = visible(text, columns.ids[at] ?? 0).length;
    const isTurn = at > 0 && columns.sampled[at] !== columns.sampled[at - 1];
    if (at > 0 && used > 0 && (used + size > width || isTurn)) {
      starts.push(at);
      used = 0;
    }
    used += size;
    if (text?.endsWith("\n") && at + 1 < columns.ids.length) {
      starts.push(at + 1);
      used = 0;
    }
  }
  starts.push(columns.ids.length);
  return Uint32Array.from(starts);
}

/** Trainer minus engine log-probability: 0 where both agree. @param {Columns} columns @param {number} at */
export function ratioAt(columns, at) {
  const trained = columns.trained_logprobs[at];
  const engine = columns.logprobs[at];
  return trained === null || trained === undefined || engine === null || engine === undefined ? null : trained - engine;
}

/** Mean of the known values in each of at most `most` neighbourhoods.
 * @param {(number | null)[]} values @param {number} most @returns {{x: number[], y: (number | null)[]}} */
export function bucketMeans(values, most) {
  const size = Math.max(1, Math.ceil(values.length / most));
  /** @type {number[]} */ const x = [];
  /** @type {(number | null)[]} */ const y = [];
  for (let from = 0; from < values.length; from += size) {
    let sum = 0;
    let known = 0;
    for (let at = from; at < Math.min(from + size, values.length); at++) {
      const value = values[at];
      if (value !== null && value !== undefined) {
        sum += value;
        known++;
      }
    }
    x.push(from);
    y.push(known ? sum / known : null);
  }
  return { x, y };
}
