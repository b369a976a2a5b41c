// The way to the server. A page that was exported has none: export/transport.js stands here then.

const BASE = new URL("api/v1/", document.baseURI);

/** Ask the server. @param {string} path below `/api/v1/` @param {RequestInit} options @returns {Promise<Response>} */
export const send = (path, options) => fetch(new URL(path, BASE), options);

/** Full address of a path. @param {string} path @returns {string} */
export const addressOf = (path) => new URL(path, BASE).href;
