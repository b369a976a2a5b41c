// A label of a trajectory.
import { html } from "../core/ui.js";
import { hrefOf } from "../core/router.js";

/** A label, with who gave it and why; a click finds all that have it. @param {{name: string, value: string, given: import("../core/types.js").GivenLabel[]}} props */
export function LabelChip({ name, value, given }) {
  const said = given.find((one) => one.name === name && one.is_current);
  const told = said ? `by ${said.source}${said.comment ? `: ${said.comment}` : ""}` : "of its task";
  return html`<a class="chip" data-label=${name} title=${told} href=${hrefOf(["trajectories"], { label: `${name}=${value}` })}>${name}=${value}</a>`;
}
