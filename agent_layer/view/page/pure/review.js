// What a reviewer is about to say, in one sentence.
import { number } from "./format.js";

/** @typedef {{score: number | null, comment: string}} Draft */
/** Nothing is said yet. @type {Draft} */
export const NOTHING = { score: null, comment: "" };

/** @param {Draft} draft @returns {boolean} */
export const isEmpty = ({ score, comment }) => score === null && comment.trim() === "";

/** @param {Draft} draft @param {string} id @param {number | null} reward the one that counts now @returns {string} */
export function draftSentence(draft, id, reward) {
  if (isEmpty(draft)) return `Judge ${id}: choose a score, write a comment, or go on.`;
  const now = reward === null ? "It has no reward now." : `Its reward is ${number(reward)} now, and stays readable.`;
  if (draft.score === null) return reward === null ? `A comment alone needs a reward to stand on: choose a score, too.` : `Enter adds a comment to the reward ${number(reward)} of ${id}.`;
  return `Enter gives ${number(draft.score)} to ${id}${draft.comment.trim() ? " with a comment" : ""}. ${now}`;
}

/** Where the queue goes on: the next one that was not judged, else the next. @param {string[]} ids @param {number} at @param {Map<string, unknown>} done @returns {number} */
export function nextOf(ids, at, done) {
  const later = ids.findIndex((id, place) => place > at && !done.has(id));
  return later >= 0 ? later : Math.min(ids.length - 1, at + 1);
}
