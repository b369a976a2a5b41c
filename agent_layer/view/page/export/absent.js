// In place of the views that need the store, in a page that was exported: each says so.
import { html } from "../core/ui.js";
import { Empty, PageHead } from "../parts/basic.js";

/** @param {string} title @param {string} shows */
const absent = (title, shows) => () =>
  html`<${PageHead} title=${title} /><div class="card"><${Empty}>${title} shows ${shows}, and needs the store. It is not in an export. 'agent-layer view' shows it.<//></div>`;

export const DiffView = absent("Diff", "where two rollouts part");
export const FailuresView = absent("Failures", "whose fault failed attempts are, over a whole store");
export const FleetView = absent("Fleet", "what runs now");
export const LearningView = absent("Learning", "rewards of a whole run by task type and policy version");
export const ReviewView = absent("Review", "answers to judge");
