"""Cost of a call in other projects' proxies, beside the gateway, before the same canned engine.

They take a hundred times as long, so they get a few calls of each kind; the gateway gets the same few, in turns.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median

from bench_table import Figure
from gateway_load import CALLS_PER_ROLLOUT, Load, ask_all
from peer_proxies import start_agent_lightning, start_litellm
from proxies import Proxy, open_doors, start_bare, start_ours

__all__ = ["measure_gateway_peers"]

NUM_ROUNDS = 3
NUM_CLIENTS = 4
LOADS = [Load(*one) for one in product((2 << 10, 24 << 10), (150, 2000), (False, True))]
AIMS = {"Agent Lightning": "≤ 0.1", "LiteLLM": "≤ 0.05"}


def measure_gateway_peers(directory: Path) -> list[Figure]:
    """Measure each kind of call in turns."""
    with ExitStack() as cleanup:
        bare = cleanup.enter_context(start_bare(directory))
        engine_url = bare.new_door().url.removesuffix("/v1")
        ours = cleanup.enter_context(start_ours(directory, engine_url))
        peers = [
            cleanup.enter_context(start(directory, engine_url)) for start in (start_litellm, start_agent_lightning)
        ]
        with asyncio.Runner() as loop:
            return [figure for load in LOADS for figure in _cost_figures(loop, load, ours, peers)]


def _cost_figures(loop: asyncio.Runner, load: Load, ours: Proxy, peers: Sequence[Proxy]) -> Iterator[Figure]:
    proxies = [ours, *peers]
    rounds = [{proxy.name: _cpu_ms(loop, load, proxy) for proxy in proxies} for _ in range(NUM_ROUNDS + 1)][1:]
    own = median(found[ours.name] for found in rounds)
    for peer in peers:
        theirs = median(found[peer.name] for found in rounds)
        what = f"gateway, {load.name}: CPU ms/call beside the proxy of {peer.name} ({peer.resident_bytes >> 20} MB)"
        yield Figure(what, f"{own:.2f}", f"{theirs:.1f}", f"{own / theirs:.3f}", AIMS[peer.name])


def _cpu_ms(loop: asyncio.Runner, load: Load, proxy: Proxy) -> float:
    doors = open_doors(proxy, 1)
    before = proxy.cpu_seconds
    loop.run(ask_all(load, doors, NUM_CLIENTS))
    return (proxy.cpu_seconds - before) / CALLS_PER_ROLLOUT * 1000
