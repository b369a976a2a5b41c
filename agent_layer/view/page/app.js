// The frame of the page: three words of navigation, the view of the address, help, theme, the stream of events.
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./core/ui.js";
import { go, useRoute, hrefOf } from "./core/router.js";
import { follow, onLive, POLL_MS } from "./core/live.js";
import { useKeys } from "./core/keys.js";
import { useRights } from "./core/writes.js";
import { PageHead } from "./parts/basic.js";
import { Unlock } from "./parts/order.js";
import { followTheme, switchTheme } from "./core/theme.js";
import { useTheme } from "./core/use_theme.js";
import { ReviewView } from "./views/review.js";
import { RunsView } from "./views/runs.js";
import { RunView } from "./views/run.js";
import { TrajectoriesView } from "./views/trajectories.js";
import { TrajectoryView } from "./views/trajectory.js";
import { GroupView } from "./views/group.js";
import { UpdateView } from "./views/update.js";
import { DiffView } from "./views/diff.js";
import { FailuresView } from "./views/failures.js";
import { FleetView } from "./views/fleet.js";
import { LearningView } from "./views/learning.js";

/** @type {Record<string, {view: any, place: string}>} */
const VIEWS = {
  runs: { view: RunsView, place: "runs" },
  run: { view: RunView, place: "runs" },
  trajectories: { view: TrajectoriesView, place: "trajectories" },
  trajectory: { view: TrajectoryView, place: "trajectories" },
  group: { view: GroupView, place: "trajectories" },
  failures: { view: FailuresView, place: "trajectories" },
  review: { view: ReviewView, place: "trajectories" },
  learning: { view: LearningView, place: "runs" },
  diff: { view: DiffView, place: "trajectories" },
  update: { view: UpdateView, place: "runs" },
  fleet: { view: FleetView, place: "fleet" },
};
const PLACES = /** @type {const} */ ([["runs", "Runs"], ["trajectories", "Trajectories"], ["fleet", "Fleet"]]);
const HELP = /** @type {const} */ ([["j k", "next, previous row or step"], ["← →", "previous, next trajectory, update, token or sibling"], ["x", "swap two rollouts that are compared"], ["Enter", "open the chosen row"], ["/", "search a task"], ["w", "search words inside trajectories"], ["t f", "tokens, forks of a trajectory, or its steps"], ["1 5 0", "review: judge with 1, a half or 0; Enter gives it, Escape drops it"], ["c s", "review: comment, choose"], ["?", "this help"]]);

/** Word, tone and meaning of how the page learns of changes. */
const LIVENESS = /** @type {const} */ ({
  opening: ["connecting", "", "the stream of changes is being opened"],
  live: ["live", "good", "this page is told of each change, and shows it, within a second at first and more rarely while changes go on"],
  asking: [`asks every ${POLL_MS / 1000} s`, "warn", "the server has no stream of changes for this page, so it asks by itself; what you see may be that old"],
  copy: ["copy", "", "an export of one query, as it was when it was made"],
  bucket: ["from a bucket", "warn", "what a bucket held when this server began, without its Redis; nothing that began later is here"],
  cut: ["cut off", "bad", "the server does not answer: what you see is from before, until it is back"],
});

function App() {
  const route = useRoute();
  const [liveness, setLive] = useState(/** @type {import("./core/live.js").Liveness | null} */ (null));
  const help = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const isDark = useTheme() === "dark";
  const shown = Object.hasOwn(VIEWS, route.name) ? VIEWS[route.name] : { view: UnknownView, place: "" };
  const key = [route.name, ...route.parts].join("/");
  const isSearching = useRef(false);
  useEffect(() => onLive(setLive), []);
  useEffect(() => follow(), []);
  useEffect(() => {
    document.title = `${route.parts.at(-1) ?? PLACES.find(([name]) => name === route.name)?.[1] ?? "Runs"} · agent-layer`;
    scrollTo(0, 0);
    if (isSearching.current) isSearching.current = !focusSearch();
  }, [key]);
  useKeys({
    "?": () => help.current?.showModal(),
    "/": () => {
      isSearching.current = !focusSearch();
      if (isSearching.current) go(hrefOf(["trajectories"]));
    },
  });
  return html`
    <a class="skip" href="#main" onClick=${focusMain}>Skip to the content</a>
    <header class="top"><div class="inner">
      <a class="brand" href=${hrefOf(["runs"])} aria-label="agent-layer, all runs">
        <svg viewBox="0 0 20 20" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" aria-hidden="true"><path d="M3 5h14M3 10h10M3 15h6" /></svg><span>agent-layer</span></a>
      <nav class="main" aria-label="Main">${PLACES.map(([name, title]) => html`<a key=${name} href=${hrefOf([name])} aria-current=${shown?.place === name ? "page" : undefined}>${title}</a>`)}</nav>
      <${Live} how=${liveness} />
      <${Unlock} />
      <button class="icon-button" onClick=${() => help.current?.showModal()} aria-label="Keyboard help">?</button>
      <button class="icon-button" onClick=${switchTheme} aria-label=${isDark ? "Use light colours" : "Use dark colours"}>${isDark ? "☀" : "☾"}</button>
    </div></header>
    <main id="main" tabindex="-1"><${Guarded} key=${key} view=${shown?.view} route=${route} /></main>
    <dialog ref=${help} aria-label="Keyboard help"><h2>Keyboard</h2>
      <dl class="keys">${HELP.map(([keys, told]) => html`<dt key=${keys}>${keys.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${told}</dd>`)}</dl>
      <button class="button" autofocus onClick=${() => help.current?.close()}>Close</button></dialog>`;
}

/** How the page learns of changes; where it is not told of them, what that means, on a telephone, too.
 * @param {{how: import("./core/live.js").Liveness | null}} props */
function Live({ how }) {
  const { is_archive: isArchive } = useRights();
  const what = isArchive && how === "live" ? "bucket" : how ?? "opening";
  const [word, tone, told] = LIVENESS[what];
  return html`<span class=${`badge ${tone} ${["asking", "cut", "bucket"].includes(what) ? "" : "short"}`} role="status" data-live=${String(how === "live")} title=${told}><i class="dot"></i><span class="word">${word}</span><span class="visually-hidden">: ${told}</span></span>`;
}

/** @param {{route: import("./core/router.js").Route}} props */
const UnknownView = ({ route }) => html`<${PageHead} title="No such view" />
  <p class="note-box" data-unknown>This page has no view <code>${route.name}</code>. Its views begin at <a href=${hrefOf(["runs"])}>Runs</a>, <a href=${hrefOf(["trajectories"])}>Trajectories</a> and <a href=${hrefOf(["fleet"])}>Fleet</a>.</p>`;

/** Focus the search field; false where the view has none. */
function focusSearch() {
  const field = /** @type {HTMLElement | null} */ (document.querySelector("[data-search]"));
  field?.focus();
  return field !== null;
}

/** @param {Event} event */
function focusMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** A view, or why it failed: the frame stays. @param {{view: any, route: import("./core/router.js").Route}} props */
function Guarded({ view, route }) {
  const [error] = useErrorBoundary();
  return error ? html`<p class="note-box bad" role="alert">This view failed: ${String(error)}</p>` : html`<${view} route=${route} />`;
}

followTheme();
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
