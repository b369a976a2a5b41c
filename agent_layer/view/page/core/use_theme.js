// The theme that is shown, for components.
import { useEffect, useState } from "./ui.js";
import { chosenTheme } from "./theme.js";

/** The theme that is shown; a component that draws colours itself asks, and is drawn again on a switch. */
export function useTheme() {
  const [theme, setTheme] = useState(chosenTheme);
  useEffect(() => {
    const follow = () => setTheme(chosenTheme());
    addEventListener("themechange", follow);
    return () => removeEventListener("themechange", follow);
  }, []);
  return theme;
}
