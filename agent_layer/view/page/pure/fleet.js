// One sentence about what runs: what needs a hand first.
import { seconds, withoutScheme } from "./format.js";

/** @typedef {{state: string}} Worker */
/** @typedef {{totals: {num_queued: number, num_leased: number, num_dead: number}, backlog: {needs: string[], num: number, num_workers: number}[], runs: {run: string, paused: string | null, num_queued: number, num_leased: number}[], leases: {worker: string | null, lease_seconds: number | null, is_lapsing: boolean}[]}} Queue */
/** @typedef {{url: string, state: string, is_drained: boolean, version: number, newest_version: number | null, behind_seconds: number, is_stale: boolean}} Engine */

/** @param {Worker[]} workers @param {Queue} queue @param {Engine[]} engines @returns {{level: "ok" | "warn" | "stop" | "unknown", sentence: string}} */
export function fleetSentence(workers, queue, engines) {
  const { totals, backlog, runs } = queue;
  const up = workers.filter((one) => one.state === "up").length;
  const serving = engines.filter((one) => one.state === "serving" && !one.is_drained).length;
  const waiting = totals.num_queued;
  const starved = backlog.find((one) => one.num > 0 && one.num_workers === 0);
  const paused = runs.filter((one) => one.paused !== null);
  if (waiting && !up) return { level: "stop", sentence: `${count(waiting, "rollout")} ${waiting === 1 ? "waits" : "wait"}, and no worker is up.` };
  if (starved) return { level: "stop", sentence: `${count(starved.num, "rollout")} ${starved.num === 1 ? "waits" : "wait"} for ${starved.needs.join(", ")}, which no worker offers.` };
  if (engines.length && !serving) return { level: "warn", sentence: "No engine serves now; calls wait." };
  const stale = engines.filter((one) => one.is_stale && !one.is_drained).sort((a, b) => b.behind_seconds - a.behind_seconds)[0];
  if (stale) return { level: "warn", sentence: `Engine ${withoutScheme(stale.url)} serves v${stale.version} and has been behind v${stale.newest_version} for ${seconds(stale.behind_seconds)}.` };
  const hungry = runs.find((one) => one.num_queued > 0 && one.num_leased === 0 && one.paused === null && runs.some((other) => other.num_leased > 0));
  if (hungry) return { level: "warn", sentence: `Run ${hungry.run} holds no slot while ${count(hungry.num_queued, "rollout")} of it ${hungry.num_queued === 1 ? "waits" : "wait"}; ${runs.filter((one) => one.num_leased > 0).map((one) => `${one.run} holds ${one.num_leased}`).join(", ")}.` };
  const lapsing = queue.leases.filter((one) => one.is_lapsing);
  if (lapsing.length) return { level: "warn", sentence: `${count(lapsing.length, "lease")} of worker ${lapsing[0]?.worker ?? "unknown"} ${lapsing.length === 1 ? "lapses" : "lapse"} in ${seconds(lapsing[0]?.lease_seconds)}: it missed a heartbeat.` };
  const silent = workers.filter((one) => one.state === "silent").length;
  if (silent && totals.num_leased + waiting > 0) return { level: "warn", sentence: `${count(silent, "worker")} ${silent === 1 ? "has" : "have"} been silent for longer than a lease.` };
  if (paused.length) return { level: "warn", sentence: `Run ${paused[0]?.run} is paused.` };
  if (!workers.length && !engines.length && !waiting) return { level: "unknown", sentence: "Nothing runs: no worker, no engine, nothing in the queue." };
  return { level: "ok", sentence: `${count(up, "worker")} and ${count(serving, "engine")} are up; ${totals.num_leased} rollouts run, ${waiting} wait.` };
}

/** @param {number} value @param {string} noun */
const count = (value, noun) => `${value} ${noun}${value === 1 ? "" : "s"}`;
