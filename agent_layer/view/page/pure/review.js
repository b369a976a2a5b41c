// What a reviewer is about to say, in one sentence.
import { number } from "./format.js";

/** @typedef {{score: number | null, comment: string, label: string}} Draft */
/** Nothing is said yet. @type {Draft} */
export const NOTHING = { score: null, comment: "", label: "" };

/** @param {Draft} draft @returns {boolean} */
export const isEmpty = ({ score, comment, label }) => score === null && comment.trim() === "" && label.trim() === "";

/** What NAME=VALUE stands for; nothing behind '=' withdraws the label. @param {string} text @returns {{name: string, value: string | null} | null} */
export function labelOf(text) {
  const at = text.indexOf("=");
  const name = text.slice(0, at).trim();
  return at > 0 && name ? { name, value: text.slice(at + 1).trim() || null } : null;
}

/** The orders that a draft stands for; none where it is not complete. @param {Draft} draft @param {string} reward name of the reward @returns {{what: "labels" | "rewards", body: object}[]} */
export function ordersOf({ score, comment, label }, reward) {
  const given = labelOf(label);
  const why = comment.trim() ? { comment: comment.trim() } : {};
  if (label.trim() && !given) return [];
  const isJudged = score !== null || (!given && comment.trim() !== "");
  return [
    ...(given ? [/** @type {const} */ ({ what: "labels", body: { ...given, ...(isJudged ? {} : why) } })] : []),
    ...(isJudged ? [/** @type {const} */ ({ what: "rewards", body: { name: reward, ...(score === null ? {} : { score }), ...why } })] : []),
  ];
}

/** @param {Draft} draft @param {string} id @param {number | null} reward the one that counts now @returns {string} */
export function draftSentence(draft, id, reward) {
  if (isEmpty(draft)) return `Judge ${id}: choose a score, write a comment or a label, or go on.`;
  const now = reward === null ? "It has no reward now." : `Its reward is ${number(reward)} now, and stays readable.`;
  const label = labelOf(draft.label);
  const comment = draft.comment.trim() ? " with a comment" : "";
  if (draft.label.trim() && !label) return "A label is NAME=VALUE; NAME= withdraws it.";
  const labelled = label && (label.value === null ? `withdraws the label ${label.name} of ${id}` : `labels ${id} ${label.name}=${label.value}`);
  if (draft.score === null && labelled) return `Enter ${labelled}${comment}.`;
  if (draft.score === null) return reward === null ? `A comment alone needs a reward to stand on: choose a score, too.` : `Enter adds a comment to the reward ${number(reward)} of ${id}.`;
  return `Enter ${labelled ? `${labelled}, and ` : ""}gives ${number(draft.score)} to ${id}${comment}. ${now}`;
}

/** The labels that come first to hand: the one just given, then those before it. @param {string[]} recent @param {string} label @returns {string[]} */
export const withRecent = (recent, label) => [label, ...recent.filter((one) => one !== label)].slice(0, 3);

/** Where the queue goes on: the next one that was not judged, else the next. @param {string[]} ids @param {number} at @param {Map<string, unknown>} done @returns {number} */
export function nextOf(ids, at, done) {
  const later = ids.findIndex((id, place) => place > at && !done.has(id));
  return later >= 0 ? later : Math.min(ids.length - 1, at + 1);
}
