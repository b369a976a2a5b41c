// The way to the server. A page that was exported has none: export/transport.js stands here then.

const BASE = new URL("api/v1/", document.baseURI);

/** Answers to what early.js has asked; each is taken once. @type {Map<string, Promise<Response>>} */
const early = (/** @type {any} */ (globalThis).agentLayerEarly ??= new Map());

/** Ask the server. @param {string} path below `/api/v1/` @param {RequestInit} options @returns {Promise<Response>} */
export function send(path, options) {
  const answer = options.method ? undefined : early.get(path);
  early.delete(path);
  return answer ?? fetch(new URL(path, BASE), options);
}

/** Leave answers that nothing has taken: what they say may have changed since. */
export const forgetEarly = () => early.clear();

/** Full address of a path. @param {string} path @returns {string} */
export const addressOf = (path) => new URL(path, BASE).href;
