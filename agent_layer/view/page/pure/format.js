// Numbers, times and names as text. "–" is "not known", never zero.

const NONE = "–";
/** Where a comma stands. The first number that toLocaleString formats takes 10 ms, before the first frame. */
const THOUSANDS = /\B(?=(?:\d{3})+$)/g;

/** @param {number | null | undefined} value @param {number} [digits] */
export function number(value, digits = 2) {
  if (value === null || value === undefined) return NONE;
  return (Number.isInteger(value) ? String(value).replace(THOUSANDS, ",") : value.toFixed(digits)).replace("-", "−");
}

/** @param {number | null | undefined} value share of one */
export function percent(value) {
  if (value === null || value === undefined) return NONE;
  return `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
}

/** A signed number. @param {number | null | undefined} value @param {number} [digits] */
export function signed(value, digits = 2) {
  if (value === null || value === undefined) return NONE;
  const size = Math.abs(value).toFixed(digits);
  return `${Number(size) === 0 ? "" : value > 0 ? "+" : "−"}${size}`;
}

/** Shares as percents that sum to 100: the largest remainders are rounded up. @param {number[]} sizes @returns {string[]} */
export function percentsOf(sizes) {
  const total = sizes.reduce((all, one) => all + one, 0);
  const exact = sizes.map((one) => (100 * one) / total);
  const lost = 100 - exact.reduce((all, one) => all + Math.floor(one), 0);
  const order = exact.map((_, at) => at).sort((a, b) => ((exact[b] ?? 0) % 1) - ((exact[a] ?? 0) % 1));
  const up = new Set(order.slice(0, Math.round(lost)));
  return exact.map((one, at) => `${Math.floor(one) + (up.has(at) ? 1 : 0)} %`);
}

/** @param {number | null | undefined} value */
export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value < 0.0995) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 100) return `${Math.round(value)} s`;
  if (value < 600) return `${Math.floor(value / 60)} min${Math.floor(value % 60) ? ` ${Math.floor(value % 60)} s` : ""}`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

/** Seconds since the epoch, of a number or an RFC 3339 text. @param {number | string | null | undefined} at */
export function epoch(at) {
  if (at === null || at === undefined) return null;
  return typeof at === "number" ? at : Date.parse(at) / 1000;
}

/** Seconds between two times; null where one is not known. @param {number | string | null | undefined} from @param {number | string | null | undefined} to */
export function secondsBetween(from, to) {
  const [first, last] = [epoch(from), epoch(to)];
  return first === null || last === null ? null : last - first;
}

/** Time of day in UTC. @param {number | string | null | undefined} at */
export function clock(at) {
  const value = epoch(at);
  return value === null ? NONE : new Date(value * 1000).toISOString().slice(11, 19);
}

/** Date and time in UTC. @param {number | string | null | undefined} at */
export function moment(at) {
  const value = epoch(at);
  return value === null ? NONE : `${new Date(value * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

/** A long id with its middle left out. @param {string} id @param {number} [most] */
export function shortId(id, most = 18) {
  return id.length <= most ? id : `${id.slice(0, Math.ceil(most / 2) - 1)}…${id.slice(-Math.floor(most / 2))}`;
}

/** An engine's address as people name it: host and port. @param {string} address */
export const withoutScheme = (address) => address.replace(/^https?:\/\//, "");

/** Versions of a policy as text: one, or from–to. @param {number | null} low @param {number | null} high */
export function versions(low, high) {
  if (low === null || high === null) return NONE;
  return low === high ? `v${low}` : `v${low}–${high}`;
}

/** Anything as readable text: text unchanged, all else as indented JSON. @param {unknown} value */
export function readable(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** The text of a message's content, or of what a tool answered: text, or the text parts of a list, without images.
 * @param {unknown} content @returns {string} */
export function contentText(content) {
  if (Array.isArray(content)) return content.map(partText).filter(Boolean).join("\n");
  return isMark(content) ? "" : Array.isArray(/** @type {any} */ (content)?.images) && imagesOf(content).length ? contentText(/** @type {any} */ (content).observation) : readable(content);
}

/** Hashes of the images that stand in a content, as the API marks them, at any depth. @param {unknown} content @returns {string[]} */
export function imagesOf(content) {
  if (isMark(content)) return [/** @type {any} */ (content).$image];
  return content && typeof content === "object" ? Object.values(content).flatMap(imagesOf) : [];
}

/** @param {any} value */
const isMark = (value) => typeof value?.$image === "string";

/** @param {any} part */
function partText(part) {
  if (isMark(part) || [part?.image_url?.url, part?.image_url, part?.source].some(isMark)) return "";
  if (typeof part === "string") return part;
  if (typeof part?.text === "string") return part.text;
  return Array.isArray(part?.content) && imagesOf(part).length ? contentText(part.content) : readable(part);
}
