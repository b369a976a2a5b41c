// Colours of values. A scale maps a value to a custom property and a strength, 0 to 1; CSS mixes it into the background.

/** @typedef {{hue: string, strength: number} | null} Tint  null: not known, no colour */

/** Log-probability in nats: certain is pale, unlikely is strong. @param {number | null | undefined} value @returns {Tint} */
export function tintOfLogprob(value) {
  if (value === null || value === undefined) return null;
  return { hue: "--hue-4", strength: Math.min(1, Math.max(0, -value / 5)) };
}

/** A value around zero: below is orange, above is blue. @param {number | null | undefined} value @param {number} most strength 1
 * @returns {Tint} */
export function tintAroundZero(value, most) {
  if (value === null || value === undefined) return null;
  return { hue: value < 0 ? "--hue-1" : "--hue-0", strength: Math.min(1, Math.abs(value) / most) };
}

/** @param {0 | 1 | null | undefined} mask @returns {Tint} */
export function tintOfMask(mask) {
  if (mask === null || mask === undefined) return null;
  return mask ? { hue: "--hue-2", strength: 0.7 } : { hue: "--ink-3", strength: 0.3 };
}

/** @typedef {{hue: string, round: number}} Shade  of a policy version; round: how often all hues were used before */

const NUM_HUES = 6;

/** A shade for each version of a chart, by its rank: the newest is blue, and no two of eighteen look alike.
 * @param {Iterable<number | null | undefined>} versions @returns {Map<number, Shade>} newest first */
export function shadesOf(versions) {
  const known = [...new Set(versions)].filter((one) => one !== null && one !== undefined).sort((a, b) => b - a);
  return new Map(known.map((version, rank) => [version, { hue: `--hue-${rank % NUM_HUES}`, round: Math.floor(rank / NUM_HUES) % 3 }]));
}

/** A shade as a colour of CSS: as it is, darker, or paler. @param {Shade | null | undefined} shade @returns {string} */
export function colourOfShade(shade) {
  if (!shade) return "var(--line-strong)";
  return shade.round === 0 ? `var(${shade.hue})` : `color-mix(in srgb, var(${shade.hue}) 50%, var(--${shade.round === 1 ? "ink" : "card"}))`;
}

/** @param {Shade | null | undefined} shade @returns {Tint} */
export const tintOfShade = (shade) => (shade ? { hue: shade.hue, strength: [0.6, 1, 0.25][shade.round] ?? 1 } : null);

/** Classes of a tint: its hue, and its strength in sixteenths. A style of its own would cost each token more than its text.
 * @param {Tint} tint @returns {string} */
export function classOfTint(tint) {
  const level = tint ? Math.round(tint.strength * 16) : 0;
  return tint && level ? ` of${tint.hue.slice(1)} tint-${level}` : "";
}

/** The kind of badge for a status of a trajectory or step. @param {string | null | undefined} status */
export function toneOfStatus(status) {
  if (["completed", "ok", "accepted", "kept"].includes(status ?? "")) return "good";
  if (["failed", "dead", "lost", "error", "stop", "infra_error"].includes(status ?? "")) return "bad";
  if (["truncated", "aborted", "paused", "warn", "surplus", "unusable", "timeout"].includes(status ?? "")) return "warn";
  return "";
}
