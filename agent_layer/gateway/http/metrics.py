"""``GET /metrics``: figures as text for Prometheus, without any name of a rollout."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from agent_layer.gateway.rollouts import Counters, RolloutRegistry, Sample

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
}
_NOW: Final = frozenset({"calls_in_flight", "rollouts_open", "log_backlog_bytes"})
_ALWAYS: Final = ("calls_started", "zero_token_calls", "text_level_calls", "rollouts_opened", "rollouts_closed")
"""Shown from the beginning, as 0."""


def metrics_text(counters: Counters, rollouts: RolloutRegistry, backlog: int) -> str:
    """Return all figures; names begin with agent_layer_, those that only grow end with _total."""
    live = rollouts.live
    figures: dict[Sample, int] = {(name, ()): 0 for name in _ALWAYS} | counters.read()
    figures["rollouts_open", ()] = len(live)
    figures["calls_in_flight", ()] = sum(len(rollout.running) for rollout in live)
    figures["log_backlog_bytes", ()] = backlog
    return "".join(f"{line}\n" for line in _lines(figures))


def backlog_bytes(directory: Path) -> int:
    """Size of everything that lies in a log directory."""
    total = 0
    for path in directory.iterdir() if directory.is_dir() else ():
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # shipped since it was listed
            continue
    return total


def _lines(figures: Mapping[Sample, int]) -> Iterator[str]:
    by_name: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for (name, labels), value in sorted(figures.items()):
        shown = ",".join(f'{label}="{_escaped(said)}"' for label, said in labels)
        by_name[name].append((f"{{{shown}}}" if shown else "", value))
    for name, samples in by_name.items():
        full = f"agent_layer_{name}" if name in _NOW else f"agent_layer_{name}_total"
        yield f"# HELP {full} {_HELP[name]}"
        yield f"# TYPE {full} {'gauge' if name in _NOW else 'counter'}"
        for labels, value in samples:
            yield f"{full}{labels} {value}"


def _escaped(said: str) -> str:
    return said.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
