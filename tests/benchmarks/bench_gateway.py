"""Cost of a call in the gateway: processor time, added delay and memory, beside a plain recorder.

All proxies stand before the same canned engine and get the same calls in turns, so that a busy machine hits all alike.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from bench_table import Figure, print_figures
from gateway_load import CALLS_PER_ROLLOUT, Load, ask_all, ask_evenly
from proxies import Proxy, open_doors, start_bare, start_ours, start_plain

__all__ = ["measure_gateway"]

NUM_ROUNDS = 3
LOADS = [Load(*one) for one in product((2 << 10, 24 << 10), (150, 2000), (False, True))]
ROLLOUTS_PER_ROUND = {150: 25, 2000: 2}
NUM_CLIENTS = 16
LIVE_ROLLOUTS = (1, 32, 256, 1000)
LIVE_CALLS, LIVE_CALLS_PER_SECOND = 300, 100.0
LONG_ROLLOUTS, NUM_WARM_CALLS, NUM_MANY_CALLS = 40, 1000, 8000
_SMALL, _LONG = Load(2 << 10, 150, is_streamed=False), Load(2 << 10, 2000, is_streamed=False)


@dataclass
class Cost:
    """What one proxy took for one load, a number for each round."""

    cpu_ms: list[float] = field(default_factory=list[float])
    """Processor time of the proxy, per call."""
    wait_ms: list[float] = field(default_factory=list[float])
    """Median wait of a client."""


def measure_gateway(directory: Path) -> list[Figure]:
    """Measure all figures of the gateway."""
    with ExitStack() as cleanup:
        bare = cleanup.enter_context(start_bare(directory))
        engine_url = bare.new_door().url.removesuffix("/v1")
        plain = cleanup.enter_context(start_plain(directory, engine_url))
        ours = cleanup.enter_context(start_ours(directory, engine_url))
        with asyncio.Runner() as loop:
            figures = [_cost_figure(loop, load, [bare, plain, ours]) for load in LOADS]
            figures += [_live_figure(loop, num_live, [bare, plain, ours]) for num_live in LIVE_ROLLOUTS]
            return [*figures, *_memory_figures(loop, ours, plain)]


def _cost_figure(loop: asyncio.Runner, load: Load, proxies: Sequence[Proxy]) -> Figure:
    costs = {proxy.name: Cost() for proxy in proxies}
    for _ in range(NUM_ROUNDS + 1):
        for proxy in proxies:
            _take_round(loop, load, proxy, costs[proxy.name])
    ours, plain = (median(costs[name].cpu_ms[1:]) for name in ("ours", "plain"))
    ratio = median(ours / plain for ours, plain in zip(costs["ours"].cpu_ms, costs["plain"].cpu_ms, strict=True))
    waits = {name: median(cost.wait_ms[1:]) for name, cost in costs.items()}
    answer = f"gateway, {load.name}: CPU ms/call (wait {_listed(waits)} ms; floor: plain recorder)"
    return Figure(answer, f"{ours:.2f}", f"{plain:.2f}", f"{ratio:.2f}", "≤ 1.3")


def _take_round(loop: asyncio.Runner, load: Load, proxy: Proxy, cost: Cost) -> None:
    doors = open_doors(proxy, ROLLOUTS_PER_ROUND[load.num_tokens])
    before = proxy.cpu_seconds
    waits = loop.run(ask_all(load, doors, NUM_CLIENTS))
    cost.cpu_ms.append((proxy.cpu_seconds - before) / len(waits) * 1000)
    cost.wait_ms.append(median(waits) * 1000)


def _live_figure(loop: asyncio.Runner, num_live: int, proxies: Sequence[Proxy]) -> Figure:
    """Return the delay that a proxy adds with ``num_live`` open rollouts, at one rate of calls."""
    waits = {proxy.name: _find_ends(loop.run(_call_live(proxy, num_live))) for proxy in proxies}
    added = {
        name: [1000 * (one - other) for one, other in zip(found, waits["engine"], strict=True)]
        for name, found in waits.items()
    }
    memory = {proxy.name: proxy.resident_bytes >> 20 for proxy in proxies}
    answer = f"gateway, {num_live:,} live rollouts, {LIVE_CALLS_PER_SECOND:.0f} calls/s: added p50 / p99 ms"
    ours, plain = added["ours"], added["plain"]
    return Figure(
        f"{answer} (RSS {memory['ours']} and {memory['plain']} MB)",
        f"{ours[0]:.1f} / {ours[1]:.1f}",
        f"{plain[0]:.1f} / {plain[1]:.1f}",
        f"{ours[1] / plain[1]:.2f}",
        "p99 ≤ 15",
    )


async def _call_live(proxy: Proxy, num_live: int) -> list[float]:
    doors = open_doors(proxy, num_live)
    return await ask_evenly(_SMALL, doors, LIVE_CALLS, LIVE_CALLS_PER_SECOND)


def _memory_figures(loop: asyncio.Runner, ours: Proxy, plain: Proxy) -> list[Figure]:
    grown = {proxy.name: _growth(loop, proxy, _SMALL, NUM_MANY_CALLS // CALLS_PER_ROLLOUT) for proxy in (ours, plain)}
    filled = {proxy.name: _growth(loop, proxy, _LONG, LONG_ROLLOUTS * 2) for proxy in (ours, plain)}
    calls = (
        f"gateway, memory after {NUM_MANY_CALLS:,} more calls of {NUM_MANY_CALLS // CALLS_PER_ROLLOUT:,} rollouts, MB"
    )
    long = f"gateway, memory after {LONG_ROLLOUTS * 2} more rollouts of 16k tokens, MB"
    return [_memory_figure(calls, grown), _memory_figure(long, filled)]


def _growth(loop: asyncio.Runner, proxy: Proxy, load: Load, num_rollouts: int) -> tuple[float, float]:
    """Memory (before, after), in MB."""
    loop.run(ask_all(load, open_doors(proxy, NUM_WARM_CALLS // CALLS_PER_ROLLOUT // 5)))
    before = proxy.resident_bytes
    loop.run(ask_all(load, open_doors(proxy, num_rollouts)))
    return before / (1 << 20), proxy.resident_bytes / (1 << 20)


def _memory_figure(what: str, grown: dict[str, tuple[float, float]]) -> Figure:
    ours, plain = grown["ours"], grown["plain"]
    return Figure(what, f"{ours[0]:.0f} → {ours[1]:.0f}", f"{plain[0]:.0f} → {plain[1]:.0f}", "", "≤ 128, flat")


def _find_ends(waits: Sequence[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    return median(waits), quantiles(waits, n=100)[98]


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in values.items())


if __name__ == "__main__":
    with TemporaryDirectory(prefix="al-bench-", ignore_cleanup_errors=True) as home:
        print_figures(measure_gateway(Path(home)))
