// Which dead letters are chosen.

const LONGEST = 160;

/** The last error on one line, as the API counts it. @param {string[]} errors @returns {string} */
export const errorLine = (errors) => [...(errors.at(-1) ?? "").split(/\s+/).filter(Boolean).join(" ")].slice(0, LONGEST).join("");

/** Choose all of these, or none where all are chosen already. @param {string[]} chosen @param {string[]} ids @returns {string[]} */
export function toggledAll(chosen, ids) {
  const others = chosen.filter((id) => !ids.includes(id));
  return ids.every((id) => chosen.includes(id)) ? others : [...others, ...ids];
}
