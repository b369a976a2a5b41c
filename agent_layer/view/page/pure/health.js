// Where the page shows what is wrong with a run.

/** @typedef {import("../core/types.js").Finding} Finding */

/** The view that shows a finding from its beginning, as parts and query of an address; null: the report names none.
 * @param {string} run @param {number | null} last step of the report @param {Finding} finding @returns {{title: string, parts: string[], query: Record<string, string>} | null} */
export function placeOf(run, last, { view, since_step, filters = {} }) {
  const step = since_step ?? last;
  switch (view) {
    case "trajectories":
      return { title: "its trajectories", parts: ["trajectories"], query: { run, ...filters } };
    case "failures":
      return { title: "its failures", parts: ["failures"], query: { run, ...filters } };
    case "learning":
      return { title: "how it learned", parts: ["learning", run], query: {} };
    case "update":
      return step === null ? null : { title: `update ${step}`, parts: ["update", run, String(step)], query: {} };
    case "fleet":
      return { title: "Fleet", parts: ["fleet"], query: filters.engine ? { engine: filters.engine } : {} };
    default:
      return null;
  }
}
