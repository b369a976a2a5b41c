// Whether the page is as narrow as a telephone: drawings then take a width of their own, so that their words stay readable.
import { useEffect, useState } from "../core/ui.js";

const NARROW = matchMedia("(max-width: 640px)");

export function useNarrow() {
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const follow = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", follow);
    return () => NARROW.removeEventListener("change", follow);
  }, []);
  return isNarrow;
}
