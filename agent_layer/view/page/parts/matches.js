// Texts inside trajectories in which all words occur; asked again while the server still reads segments for its text index.
import { html, useEffect, useState } from "../core/ui.js";
import { hrefOf } from "../core/router.js";
import { get, pathOf } from "../core/api.js";
import { Badge, Card, Empty, Failure } from "./basic.js";
import { number, shortId } from "../pure/format.js";

/** @typedef {import("../core/types.js").Found} Found */
const LIMIT = 50;
const AGAIN_MS = 200;

/** @param {{filters: URLSearchParams, text: string}} props */
export function Matches({ filters, text }) {
  const asked = new URLSearchParams(filters);
  asked.delete("order");
  asked.set("text", text);
  asked.set("limit", String(LIMIT));
  const { data, error, more } = useSearch(pathOf(["search"], asked));
  if (error && !data) return html`<${Failure} error=${error} />`;
  if (!data) return html`<div class="loading" role="status" aria-label="Searching"></div>`;
  return html`<${Card} title="Texts" flush more="the newest first">
    ${data.num_waiting > 0 && html`<p class="note-box small" role="status">Reading for the text index: ${number(data.num_segments - data.num_waiting)} of ${number(data.num_segments)} segments. <progress max=${data.num_segments} value=${data.num_segments - data.num_waiting} aria-label="Segments read"></progress></p>`}
    ${data.items.length ? html`<table class="table" data-matches><thead><tr><th scope="col">Trajectory</th><th scope="col" class="right">Step</th><th scope="col">Text</th><th scope="col" class="wide-only">Where</th><th scope="col" class="wide-only">Status</th><th scope="col" class="wide-only right">Reward</th></tr></thead><tbody>${data.items.map((one, key) => html`<tr key=${key}><td class="nowrap"><a href=${hrefOf(["trajectory", one.row.trajectory_id], one.step === null ? {} : { step: String(one.step) })} title=${one.row.trajectory_id}>${shortId(one.row.trajectory_id, 18)}</a></td><td class="right">${number(one.step)}</td><td>${one.snippet.map((piece) => (piece.is_match ? html`<mark>${piece.text}</mark>` : piece.text))}</td><td class="wide-only">${one.where}</td><td class="wide-only"><${Badge} status=${one.row.status} /></td><td class="wide-only right">${number(one.row.reward)}</td></tr>`)}</tbody></table>` : data.num_waiting === 0 && html`<${Empty}>No text has all of these words. "With quotes" is a phrase, work* a beginning.<//>`}
    ${data.left_out.filter((one) => !one.includes("not in the text index yet")).map((one) => html`<p class="small quiet" key=${one}>Left out: ${one}</p>`)}
    ${data.cursor && html`<p class="chips"><button class="button" onClick=${more}>More</button></p>`}
    ${error && html`<${Failure} error=${error} />`}<//>`;
}

/** @param {string} path @returns {{data: Found | null, error: Error | null, more: () => Promise<void>}} */
function useSearch(path) {
  const [state, setState] = useState(/** @type {{path: string, data: Found | null, error: Error | null}} */ ({ path, data: null, error: null }));
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const ask = () => get(path, abort.signal).then(
      (data) => {
        setState({ path, data, error: null });
        if (data.num_waiting) timer = window.setTimeout(ask, AGAIN_MS);
      },
      (error) => abort.signal.aborted || setState((old) => ({ path, data: old.path === path ? old.data : null, error })),
    );
    void ask();
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [path]);
  const data = state.path === path ? state.data : null;
  const more = async () => {
    const page = await get(`${path}&cursor=${encodeURIComponent(data?.cursor ?? "")}`);
    setState((old) => (old.path === path && old.data ? { ...old, data: { ...page, items: [...old.data.items, ...page.items] } } : old));
  };
  return { data, error: state.path === path ? state.error : null, more };
}
