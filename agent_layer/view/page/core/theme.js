// Dark or light: as the system says, until the switch is used; then as the reader chose.

const DARK = matchMedia("(prefers-color-scheme: dark)");
const KEY = "agent-layer-theme";

/** @returns {"dark" | "light"} */
export function chosenTheme() {
  const stored = localStorage.getItem(KEY);
  return stored === "dark" || stored === "light" ? stored : DARK.matches ? "dark" : "light";
}

export function applyTheme() {
  document.documentElement.dataset.theme = chosenTheme();
  dispatchEvent(new Event("themechange"));
}

export function switchTheme() {
  localStorage.setItem(KEY, chosenTheme() === "dark" ? "light" : "dark");
  applyTheme();
}

/** Apply the theme now, and whenever the system changes its own. */
export function followTheme() {
  applyTheme();
  DARK.addEventListener("change", applyTheme);
}

/** The value of a design token. @param {string} name @returns {string} */
export const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
