"""Three gauges of vLLM's ``/metrics``, summed over the engine's replicas."""

import re
from typing import Final

import msgspec

_LINE: Final = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc)(?:\{[^\n]*\})? ([0-9.eE+-]+)", re.MULTILINE
)


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """Load that an engine reports."""

    running: int
    waiting: int
    cache_usage: float
    """Part of the fullest replica's cache in use, 0 to 1."""


def read_gauges(text: str) -> Gauges | None:
    """Read Prometheus text; None where the engine reports none of it, as vLLM under --disable-log-stats."""
    found: dict[str, list[float]] = {}
    for name, value in _LINE.findall(text):
        found.setdefault(name, []).append(float(value))
    if not found:
        return None
    return Gauges(
        running=int(sum(found.get("num_requests_running", ()))),
        waiting=int(sum(found.get("num_requests_waiting", ()))),
        cache_usage=max(found.get("kv_cache_usage_perc", ()), default=0.0),
    )
