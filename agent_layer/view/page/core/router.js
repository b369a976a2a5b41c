// The hook that follows the address: every state of the page is a URL.
import { useEffect, useState } from "./ui.js";
import { parseRoute } from "../pure/address.js";
export { changed, hrefOf } from "../pure/address.js";

/** @typedef {import("../pure/address.js").Route} Route */

/** @param {string} href @param {{replace?: boolean}} [options] */
export function go(href, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", href);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = href;
}

/** @returns {Route} */
export function useRoute() {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const follow = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}
