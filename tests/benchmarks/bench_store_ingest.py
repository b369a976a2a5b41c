"""Ingest speed of the store and size of its trajectories, beside other formats.

Ours is the whole way: logs that are on disk, a shipper that reads them, an object on disk or on S3, the index. All run
in turns, on the same trajectories of 8 steps with token ids and log-probabilities.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench_table import Figure
from store_facts import make_facts
from store_feed import StoreFigures, feed
from store_peers import Sized, store_in_objects, store_in_parquet, store_in_sqlite
from store_servers import Servers, run_servers
from store_workload import make_appends

__all__ = ["measure_store_ingest"]

NUM_STEPS = 8
NUM_TRAJECTORIES = {1: 200, 10: 1_000, 100: 2_000}
"""By batch."""
NUM_ROUNDS = 3
DIRECTORY, S3 = "a directory", "S3"
EACH, SQLITE, PARQUET = "bare objects, one each", "SQLite WAL", "Parquet files"
AIMS = {(100, SQLITE): "≥ 1,500/s", (100, "batches of 1"): "≥ 10"}
"""One object each is also what batches of 1 are: all the same way, on the same server."""


def measure_store_ingest(directory: Path, num_trajectories: dict[int, int] = NUM_TRAJECTORIES) -> list[Figure]:
    """Store the same in every way, batch size after batch size."""
    most = max(num_trajectories.values())
    facts = [make_facts(number, NUM_STEPS) for number in range(most)]
    trajectories = [(one, make_appends(one)) for one in facts]
    gc.freeze()  # who writes in earnest does not hold them all, and is not slowed down by looking through them
    with run_servers(directory) as servers:
        found = {
            batch: _rounds(servers, directory / str(batch), trajectories[:num], batch)
            for batch, num in num_trajectories.items()
        }
    speeds = [figure for batch, stored in found.items() for figure in _speed_figures(batch, stored)]
    batching = [_figure(batch, S3, stored[S3], "batches of 1", found[1][S3]) for batch, stored in found.items()]
    sizes = [figure for batch, stored in found.items() for figure in _size_figures(batch, stored)]
    return [*speeds, *batching[1:], *sizes]


def _rounds(servers: Servers, directory: Path, trajectories: Sized, batch: int) -> dict[str, list[StoreFigures]]:
    directory.mkdir()
    found: dict[str, list[StoreFigures]] = {}
    for number in range(NUM_ROUNDS):
        for name, store in _ways(servers, directory / f"{batch}-{number}", trajectories, batch).items():
            found.setdefault(name, []).append(store())
            print(f"  batches of {batch}, {name}: {found[name][-1].per_second:.0f}/s", file=sys.stderr)
    return found


def _ways(servers: Servers, place: Path, trajectories: Sized, batch: int) -> dict[str, Callable[[], StoreFigures]]:
    place.mkdir()
    appends = [one for _, one in trajectories]
    return {
        DIRECTORY: lambda: feed(servers.settings(place / "ours", namespace=place.name), appends, batch),
        SQLITE: lambda: store_in_sqlite(place / "sqlite", trajectories, batch),
        PARQUET: lambda: store_in_parquet(place / "parquet", trajectories, batch),
        S3: lambda: feed(servers.settings(place / "s3", on_s3=True, namespace=f"{place.name}-s3"), appends, batch),
        EACH: lambda: store_in_objects(servers.s3_url, trajectories[: len(trajectories) // 4]),
    }


def _speed_figures(batch: int, found: dict[str, list[StoreFigures]]) -> Iterator[Figure]:
    for place, peer in ((DIRECTORY, SQLITE), (DIRECTORY, PARQUET), (S3, EACH)):
        yield _figure(batch, place, found[place], peer, found[peer])


def _figure(batch: int, place: str, ours: list[StoreFigures], peer: str, theirs: list[StoreFigures]) -> Figure:
    own, other = (median(one.per_second for one in stored) for stored in (ours, theirs))
    ratio = median(one.per_second / another.per_second for one, another in zip(ours, theirs, strict=True))
    what = f"store, ingest to {place}, batches of {batch}, fsync: trajectories/s beside {peer}"
    return Figure(what, f"{own:,.0f}", f"{other:,.0f}", f"{ratio:.1f}", AIMS.get((batch, peer), ""))


def _size_figures(batch: int, found: dict[str, list[StoreFigures]]) -> Iterator[Figure]:
    ours, each = found[S3][-1], found[EACH][-1]
    num_puts = [one.num_objects / one.num_trajectories for one in (ours, each)]
    aims = ("≤ 0.02", "≤ 19 KB") if batch == 100 else ("", "")
    what = f"store, batches of {batch}"
    yield Figure(
        f"{what}: PUTs a trajectory beside {EACH}",
        *(f"{num:.3f}" for num in num_puts),
        f"{num_puts[0] / num_puts[1]:.3f}",
        aims[0],
    )
    for peer in (EACH, SQLITE, PARQUET):
        other = found[peer][-1]
        yield Figure(
            f"{what}: KB a trajectory, 8 steps with ids and logprobs, beside {peer}",
            f"{ours.kilobytes_each:.1f}",
            f"{other.kilobytes_each:.1f}",
            f"{ours.kilobytes_each / other.kilobytes_each:.2f}",
            aims[1] if peer == EACH else "",
        )
