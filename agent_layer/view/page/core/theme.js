// Dark or light: as the system says, until the switch is used; then as the reader chose.
import { useEffect, useState } from "./ui.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");
const KEY = "agent-layer-theme";

/** @returns {"dark" | "light"} */
function chosen() {
  const stored = localStorage.getItem(KEY);
  return stored === "dark" || stored === "light" ? stored : DARK.matches ? "dark" : "light";
}

export function applyTheme() {
  document.documentElement.dataset.theme = chosen();
  dispatchEvent(new Event("themechange"));
}

export function switchTheme() {
  localStorage.setItem(KEY, chosen() === "dark" ? "light" : "dark");
  applyTheme();
}

/** The theme that is shown; a component that draws colours itself asks, and is drawn again on a switch. */
export function useTheme() {
  const [theme, setTheme] = useState(chosen);
  useEffect(() => {
    const follow = () => setTheme(chosen());
    addEventListener("themechange", follow);
    return () => removeEventListener("themechange", follow);
  }, []);
  return theme;
}

DARK.addEventListener("change", applyTheme);

/** The value of a design token. @param {string} name @returns {string} */
export const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
