"""Redis memory of a trajectory and of a step: an index of short ones beside an index of long ones."""

from pathlib import Path

from bench_table import Figure
from store_fill import fill
from store_servers import run_servers

from agent_layer.store import open_store

__all__ = ["measure_store_memory"]

NUM_TRAJECTORIES = 6_144
"""Three blocks of the index."""
SHORT, LONG = 4, 20


def measure_store_memory(directory: Path, num_trajectories: int = NUM_TRAJECTORIES) -> list[Figure]:
    """Fill both indexes, and compute the shares of a step and of a trajectory."""
    with run_servers(directory) as servers:
        bytes_each: dict[int, float] = {}
        for num_steps in (SHORT, LONG):
            settings = servers.settings(directory / "store", namespace=f"steps-{num_steps}")
            redis = open_store(settings).redis
            before = redis.info("memory")["used_memory"]
            fill(settings, 0, num_trajectories, num_steps)
            bytes_each[num_steps] = (redis.info("memory")["used_memory"] - before) / num_trajectories
    per_step = (bytes_each[LONG] - bytes_each[SHORT]) / (LONG - SHORT)
    per_trajectory = bytes_each[SHORT] - SHORT * per_step
    return [
        Figure("store, memory of Redis a trajectory, without its steps", f"{per_trajectory:,.0f} B", "", "", "≤ 2 KB"),
        Figure("store, memory of Redis a step", f"{per_step:,.0f} B", "", "", "≤ 200 B"),
    ]
