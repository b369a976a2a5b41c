// Asks what the view of the address waits for, and colours the page, while its script is on its way. This one is small, so it is here first.
import { applyTheme } from "./core/theme.js";
import { parseRoute } from "./pure/address.js";
import { firstPaths } from "./pure/first.js";

const BASE = new URL("api/v1/", document.baseURI);

/** Ask, and read the answer as soon as it comes. @param {string} path @returns {Promise<Response>} */
async function ask(path) {
  const response = await fetch(new URL(path, BASE));
  const body = response.json();
  body.catch(() => {}); // whoever takes the answer hears of it
  return Object.assign(response, { json: () => body });
}

/** @param {string} path @returns {[string, Promise<Response>]} */
function asked(path) {
  const answer = ask(path);
  answer.catch(() => {});
  return [path, answer];
}

/** @type {any} */ (globalThis).agentLayerEarly ??= new Map(firstPaths(parseRoute(location.hash)).map(asked)); // where the page was quicker, it asks by itself
applyTheme(); // the first look into what the browser has stored takes its time, too
