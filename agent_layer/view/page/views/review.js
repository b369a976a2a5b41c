// Judge the answers of a query one after another by keys, and take the chosen ones away as tasks or as a dataset.
import { html, useEffect, useRef, useState } from "../core/ui.js";
import { changed, go, hrefOf } from "../core/router.js";
import { get, pathOf, useResource } from "../core/api.js";
import { download, order, useRights, writerName } from "../core/writes.js";
import { useKeys } from "../core/keys.js";
import { Await, Badge, Card, Empty, Failure, PageHead } from "../parts/basic.js";
import { LabelChip } from "../parts/label.js";
import { AskFirst } from "../parts/order.js";
import { Said, StepCard } from "../parts/step_card.js";
import { number, readable, shortId } from "../pure/format.js";
import { draftSentence, labelOf, nextOf, NOTHING, ordersOf, withRecent } from "../pure/review.js";

/** @typedef {import("../core/types.js").Row} Row */
/** @typedef {import("../core/types.js").Trajectory} Trajectory */
const LIMIT = 200;
/** The next page of the queue is fetched this many answers before its end. */
const AHEAD = 20;
/** Of the places that an address may name: all pages before it are fetched. */
const LAST_PLACE = 10_000;
const SCORES = /** @type {const} */ ([["1", 1], ["5", 0.5], ["0", 0]]);
const LABEL_KEYS = ["7", "8", "9"];
const RECENT = "agent-layer.labels";
const HIDDEN = new Set(["system"]);

/** @param {{route: import("../core/router.js").Route}} props */
export function ReviewView({ route }) {
  const { query } = route;
  const filters = new URLSearchParams(query);
  filters.delete("at");
  const { rows, cursor, error } = useQueue(filters.toString(), placeIn(query));
  const failure = error && html`<${Failure} error=${error} />`;
  return html`<${PageHead} title="Review" crumbs=${html`<a href=${hrefOf(["trajectories"], filters)}>Trajectories</a>`}><span class="quiet num" data-queued>${rows ? `${number(rows.length)} of this query${cursor ? ", and more behind them" : ""}` : ""}</span><//>
    ${!rows ? failure ?? html`<div class="loading" role="status" aria-label="Loading"></div>` : rows.length ? html`${failure}<${Queue} rows=${rows} query=${query} />` : html`<${Empty}>No trajectory matches.<//>`}`;
}

/** Place in the queue that an address names. @param {URLSearchParams} query */
const placeIn = (query) => Math.min(LAST_PLACE, Math.max(0, Math.floor(Number(query.get("at") ?? 0)) || 0));

/** The answers of a query as they were first, page by page up to a place: what is judged meanwhile keeps its own.
 * A page that failed is asked for again at the next place; what is there stays.
 * @param {string} filters @param {number} at @returns {{rows: Row[] | null, cursor: string | null, error: Error | null}} */
function useQueue(filters, at) {
  const none = { filters, rows: null, cursor: null, error: null, failedAt: -1 };
  const [state, setState] = useState(/** @type {{filters: string, rows: Row[] | null, cursor: string | null, error: Error | null, failedAt: number}} */ (none));
  const mine = state.filters === filters ? state : none;
  const isWanted = at !== mine.failedAt && (mine.rows === null || (mine.cursor !== null && at + AHEAD >= mine.rows.length));
  useEffect(() => {
    if (!isWanted) return undefined;
    const abort = new AbortController();
    const asked = new URLSearchParams(`${filters}&limit=${LIMIT}`);
    if (mine.cursor) asked.set("cursor", mine.cursor);
    get(pathOf(["query"], asked), abort.signal).then(
      (page) => setState({ filters, rows: [...(mine.rows ?? []), ...page.items], cursor: page.cursor, error: null, failedAt: -1 }),
      (error) => abort.signal.aborted || setState({ ...mine, filters, error, failedAt: at }),
    );
    return () => abort.abort();
  }, [filters, mine.cursor, mine.error, isWanted]);
  return mine;
}

/** @param {{rows: Row[], query: URLSearchParams}} props */
function Queue({ rows, query }) {
  const { may_write: mayWrite } = useRights();
  const ids = rows.map((one) => one.trajectory_id);
  const at = Math.min(rows.length - 1, placeIn(query));
  const id = ids[at] ?? "";
  const [done, setDone] = useState(/** @type {Map<string, number | null>} */ (new Map()));
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  const found = useResource(pathOf(["trajectories", id]));
  /** @param {number} place */
  const to = (place) => hrefOf(["review"], changed(query, { at: place || null }));
  /** @param {number} by */
  const walk = (by) => go(to(Math.min(rows.length - 1, Math.max(0, at + by))), { replace: true });
  const choose = () => setChosen((old) => (old.includes(id) ? old.filter((one) => one !== id) : [...old, id]));
  const labels = [...new Set(rows.flatMap((row) => Object.entries(row.labels).map(([name, value]) => `${name}=${value}`)))].sort();
  useKeys({ j: () => walk(1), k: () => walk(-1), s: choose });
  /** @param {number | null} reward */
  const onDone = (reward) => {
    const now = new Map(done).set(id, reward);
    setDone(now);
    go(to(nextOf(ids, at, now)), { replace: true });
  };
  return html`<p class="chips"><span class="badge" role="status">${number(done.size)} judged, ${number(chosen.length)} chosen</span><button class="button" onClick=${() => walk(-1)} disabled=${at <= 0} aria-label="Previous answer">←</button><span class="small quiet num place">${number(at + 1)}/${number(rows.length)}</span><button class="button" onClick=${() => walk(1)} disabled=${at + 1 >= rows.length} aria-label="Next answer">→</button>${mayWrite && html`<${Exports} chosen=${chosen} />`}</p>
    <div class="steps"><nav class="outline" aria-label="Queue">${rows.map((row, place) => html`<a key=${row.trajectory_id} href=${to(place)} aria-current=${place === at ? "true" : undefined} title=${row.trajectory_id}><span class="cut">${chosen.includes(row.trajectory_id) ? "◆ " : ""}${shortId(row.trajectory_id, 18)}</span><span class="num quiet">${number(done.has(row.trajectory_id) ? done.get(row.trajectory_id) ?? null : row.reward)}${done.has(row.trajectory_id) ? " ✓" : ""}</span></a>`)}</nav>
      <div class="step-list"><${Await} resource=${found}>${(/** @type {Trajectory} */ data) => html`
        ${mayWrite ? html`<${Judge} key=${id} data=${data} labels=${labels} onDone=${onDone} />` : html`<p class="note-box small">Rewards, comments and labels are given here where the server runs with <code>--allow-writes</code>, by its operator.</p>`}
        <p class="chips"><a class="chip" href=${hrefOf(["trajectory", id])}>open ${shortId(id, 24)}</a><button class=${`chip ${chosen.includes(id) ? "on" : ""}`} aria-pressed=${chosen.includes(id) ? "true" : "false"} onClick=${choose} data-choose>chosen</button><${Badge} status=${data.row.status} />${data.rewards.filter((one) => one.is_current).map((one) => html`<span class="badge accent" key=${one.name}>${one.name} ${number(one.score)} by ${one.source}${one.comment ? `: ${one.comment}` : ""}</span>`)}${Object.entries(data.row.labels).map(([name, value]) => html`<${LabelChip} key=${name} name=${name} value=${value} given=${data.given_labels} />`)}</p>
        ${data.task && html`<${Card} title="Task"><${Said} role="task" text=${readable(data.task.input)} /><//>`}
        ${data.steps.map((step) => html`<${StepCard} key=${step.index} id=${id} step=${step} isOn=${false} hidden=${HIDDEN} href=${hrefOf(["trajectory", id], { tab: "tokens", step: step.index })} />`)}`}<//></div></div>`;
}

/** The labels that this browser gave last. @returns {string[]} */
const recentLabels = () => (localStorage.getItem(RECENT) ?? "").split("\n").filter(Boolean);

/** @param {{data: Trajectory, labels: string[], onDone: (reward: number | null) => void}} props */
function Judge({ data, labels, onDone }) {
  const id = data.row.trajectory_id;
  const [draft, setDraft] = useState(NOTHING);
  const [state, setState] = useState({ isBusy: false, error: "" });
  const comment = useRef(/** @type {HTMLInputElement | null} */ (null));
  const label = useRef(/** @type {HTMLInputElement | null} */ (null));
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  const recent = recentLabels();
  const name = data.rewards.find((one) => one.is_current && one.scope === "rollout")?.name ?? "reward";
  const orders = ordersOf(draft, name);
  /** @param {number} score */
  const pick = (score) => setDraft((old) => ({ ...old, score: old.score === score ? null : score }));
  /** @param {string} text */
  const pickLabel = (text) => setDraft((old) => ({ ...old, label: old.label === text ? "" : text }));
  const labelKeys = recent.map((text, place) => /** @type {const} */ ([LABEL_KEYS[place] ?? "", () => pickLabel(text)]));
  useKeys({ ...Object.fromEntries([...SCORES.map(([key, score]) => [key, () => pick(score)]), ...labelKeys]), c: () => comment.current?.focus(), l: () => label.current?.focus(), Escape: () => setDraft(NOTHING), Enter: () => form.current?.requestSubmit() });
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    if (!orders.length || state.isBusy) return;
    setState({ isBusy: true, error: "" });
    const by = /** @type {HTMLInputElement} */ (form.current?.elements.namedItem("by")).value.trim();
    let reward = data.reward;
    try {
      for (const { what, body } of orders) {
        const line = await order(["trajectories", id, what], body, by);
        if (what === "rewards") reward = line.after.reward;
      }
      if (labelOf(draft.label)?.value) localStorage.setItem(RECENT, withRecent(recent, draft.label.trim()).join("\n"));
      onDone(reward);
    } catch (error) {
      setState({ isBusy: false, error: /** @type {Error} */ (error).message });
    }
  };
  return html`<section class="card" aria-label="Judgement"><div class="body"><form class="judge" ref=${form} onSubmit=${submit} data-judge>
    <p class="told" role="status">${draftSentence(draft, shortId(id, 24), data.reward)}</p>
    <p class="chips">${SCORES.map(([key, score]) => html`<button key=${key} type="button" class=${`chip ${draft.score === score ? "on" : ""}`} aria-pressed=${draft.score === score ? "true" : "false"} onClick=${() => pick(score)}>${number(score)} <kbd>${key}</kbd></button>`)}
      <input class="field" type="number" step="any" size="6" name="score" aria-label="Another score" placeholder="other" value=${draft.score ?? ""} onInput=${(/** @type {any} */ event) => setDraft({ ...draft, score: event.target.value === "" ? null : Number(event.target.value) })} />
      ${recent.map((text, place) => html`<button key=${text} type="button" class=${`chip ${draft.label === text ? "on" : ""}`} aria-pressed=${draft.label === text ? "true" : "false"} onClick=${() => pickLabel(text)}>${text} <kbd>${LABEL_KEYS[place]}</kbd></button>`)}
      <input class="field" name="label" ref=${label} list="known-labels" maxlength="400" aria-label="Label" placeholder="Label NAME=VALUE ( l )" value=${draft.label} onInput=${(/** @type {any} */ event) => setDraft({ ...draft, label: event.target.value })} autocomplete="off" /><datalist id="known-labels">${labels.map((text) => html`<option key=${text} value=${text}></option>`)}</datalist>
      <input class="field wide" name="comment" ref=${comment} maxlength="4000" aria-label="Comment" placeholder="Comment ( c )" value=${draft.comment} onInput=${(/** @type {any} */ event) => setDraft({ ...draft, comment: event.target.value })} />
      <input class="field" name="by" required maxlength="64" size="12" aria-label="Your name" placeholder="Your name" defaultValue=${writerName()} autocomplete="name" />
      <button class="button primary" type="submit" disabled=${!orders.length || state.isBusy}>${state.isBusy ? "Please wait …" : "Give it"} <kbd>Enter</kbd></button></p>
    ${state.error && html`<p class="note-box bad small" role="alert">${state.error}</p>`}</form></div></section>`;
}

/** @param {{chosen: string[]}} props */
function Exports({ chosen }) {
  const num = `${number(chosen.length)} ${chosen.length === 1 ? "trajectory" : "trajectories"}`;
  /** @param {string} what */
  const act = (what) => (/** @type {unknown} */ _, /** @type {string} */ by) => download(["export", what], { trajectories: chosen }, by, `${what}.jsonl`);
  return html`<${AskFirst} label="Task file" name="tasks" isDisabled=${!chosen.length} title=${`Tasks of ${num}?`} verb="Download" act=${act("tasks")} told="A file that 'agent-layer submit' takes: each task once, with its grading. Nothing is queued. The journal names what was taken." />
    <${AskFirst} label="Dataset" name="dataset" isDisabled=${!chosen.length} title=${`Dataset of ${num}?`} verb="Download" act=${act("dataset")} told="One line for each trajectory with its steps, contents and rewards, as 'agent-layer store export jsonl' writes it. The journal names what was taken." />`;
}
