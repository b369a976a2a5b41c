"""Three gauges of an engine's ``/metrics``, summed over its replicas, by the names of every kind."""

import re
from typing import Final

import msgspec

from agent_layer.engines import KINDS

_NAMES: Final = {metric: name for kind in KINDS.values() for metric, name in kind.gauges.items()}
_LINE: Final = re.compile(rf"^({'|'.join(_NAMES)})(?:\{{[^\n]*\}})? ([0-9.eE+-]+)", re.MULTILINE)


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """Load that an engine reports."""

    running: int
    waiting: int
    cache_usage: float
    """Part of the fullest replica's cache in use, 0 to 1."""


def read_gauges(text: str) -> Gauges | None:
    """Read Prometheus text; None where the engine reports none of it.

    So does vLLM under --disable-log-stats, and SGLang without --enable-metrics.
    """
    found: dict[str, list[float]] = {}
    for metric, value in _LINE.findall(text):
        found.setdefault(_NAMES[metric], []).append(float(value))
    if not found:
        return None
    return Gauges(
        running=int(sum(found.get("running", ()))),
        waiting=int(sum(found.get("waiting", ()))),
        cache_usage=max(found.get("cache_usage", ()), default=0.0),
    )
