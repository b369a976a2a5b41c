"""``GET /metrics``: figures as text for Prometheus, without any name of a rollout."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Final

from agent_layer.gateway.engines.pool import EngineWatcher
from agent_layer.gateway.rollouts.counters import Counters, Durations, Sample
from agent_layer.gateway.rollouts.registry import RolloutRegistry

_HELP: Final[dict[str, str]] = {
    "calls_started": "Model calls whose start is recorded.",
    "calls_ended": "Model calls whose end is recorded.",
    "calls_in_flight": "Model calls that run now.",
    "prefix_breaks": "Prompts that should have continued earlier tokens and do not.",
    "zero_token_calls": "Whole answers in which the model said nothing.",
    "text_level_calls": "Answers without token ids, which cannot be trained on.",
    "refused_keys": "Requests whose key opened nothing.",
    "refused_requests": "Requests that were answered with an error, those with such a key included.",
    "rollouts_opened": "Attempts that were opened.",
    "rollouts_closed": "Attempts that were closed.",
    "rollouts_paused": "Attempts that lost their holder and were kept for another.",
    "rollouts_resumed": "Attempts with which another holder went on.",
    "rollouts_open": "Attempts that are open now.",
    "log_backlog_bytes": "Bytes in the log directory that are not shipped yet.",
    "calls_waiting": "Model calls that wait for an engine that serves and has room.",
    "engine_serving": "1 while gateways may send calls to the engine, 0 while weights are switched or it is drained.",
    "engine_calls_in_flight": "Calls of this gateway at the engine.",
    "engine_calls_queued": "Calls in the engine's own queue, as it reported last.",
    "engine_cache_usage": "Part of the engine's KV cache in use, 0 to 1, as it reported last.",
    "engine_call_limit": "Calls of this gateway that the engine gets at a time; absent: any number.",
    "engine_stall_seconds": "Time for which the last switch of weights held the engine's calls.",
    "engine_stalled_seconds": "Time for which all switches of weights held the engine's calls.",
    "engine_switches": "Switches of weights of the engine.",
}
_NOW: Final = frozenset(
    {
        "calls_in_flight",
        "rollouts_open",
        "log_backlog_bytes",
        "calls_waiting",
        "engine_serving",
        "engine_calls_in_flight",
        "engine_calls_queued",
        "engine_cache_usage",
        "engine_call_limit",
        "engine_stall_seconds",
    }
)
_ALWAYS: Final = ("calls_started", "zero_token_calls", "text_level_calls", "rollouts_opened", "rollouts_closed")
"""Shown from the beginning, as 0."""


def metrics_text(counters: Counters, rollouts: RolloutRegistry, engines: EngineWatcher, backlog: int) -> str:
    """Return all figures; names begin with agent_layer_, those that only grow end with _total."""
    live = rollouts.live
    figures: dict[Sample, float] = {(name, ()): 0 for name in _ALWAYS} | counters.read() | _engine_figures(engines)
    figures["calls_waiting", ()] = engines.admission.num_waiting
    figures["rollouts_open", ()] = len(live)
    figures["calls_in_flight", ()] = sum(len(rollout.lease.running) for rollout in live)
    figures["log_backlog_bytes", ()] = backlog
    return "".join(f"{line}\n" for line in [*_lines(figures), *_histogram("call_seconds", counters.call_seconds)])


def _engine_figures(engines: EngineWatcher) -> dict[Sample, float]:
    """Return what is known of each engine: how busy it is, and how long switches of its weights took."""
    figures: dict[Sample, float] = {}
    for engine in engines.rotation.all_engines:
        load, labels = engines.rotation.get_load(engine.url), (("engine", engine.url), ("run", engine.run))
        found = {
            "engine_serving": int(engine.state == "serving" and not engine.is_drained),
            "engine_calls_in_flight": load.in_flight,
            "engine_calls_queued": load.waiting,
            "engine_cache_usage": load.cache_usage,
            "engine_call_limit": load.limit,
            "engine_stall_seconds": engine.stall_seconds,
            "engine_stalled_seconds": engine.stalled_seconds,
            "engine_switches": engine.num_switches,
        }
        figures |= {(name, labels): value for name, value in found.items() if value is not None}
    return figures


def _histogram(name: str, durations: Durations) -> Iterator[str]:
    full = f"agent_layer_{name}"
    yield f"# HELP {full} Duration of model calls that ended."
    yield f"# TYPE {full} histogram"
    bounds = [*map(str, durations.BOUNDS), "+Inf"]
    for bound, count in zip(bounds, accumulate(durations.counts), strict=True):
        yield f'{full}_bucket{{le="{bound}"}} {count}'
    yield f"{full}_sum {durations.total_seconds:.6f}"
    yield f"{full}_count {sum(durations.counts)}"


def backlog_bytes(directory: Path) -> int:
    """Size of everything that lies in a log directory."""
    total = 0
    for path in directory.iterdir() if directory.is_dir() else ():
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # shipped since it was listed
            continue
    return total


def _lines(figures: Mapping[Sample, float]) -> Iterator[str]:
    by_name: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for (name, labels), value in sorted(figures.items()):
        shown = ",".join(f'{label}="{_escaped(label_value)}"' for label, label_value in labels)
        by_name[name].append((f"{{{shown}}}" if shown else "", value))
    for name, samples in by_name.items():
        full = f"agent_layer_{name}" if name in _NOW else f"agent_layer_{name}_total"
        yield f"# HELP {full} {_HELP[name]}"
        yield f"# TYPE {full} {'gauge' if name in _NOW else 'counter'}"
        for labels, value in samples:
            yield f"{full}{labels} {value}"


def _escaped(label_value: str) -> str:
    return label_value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
