"""``make bench``: runs every measurement on this machine and prints one table.

``python tests/benchmarks [PART …] [--most N]``: only parts whose names begin so; the store's index grows to N at most.
"""

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_async_training import measure_async_training
from bench_capture import measure_capture
from bench_dispatch import measure_dispatch
from bench_dispatch_costs import measure_dispatch_costs
from bench_dispatch_durable import measure_dispatch_durable
from bench_dispatch_live import measure_dispatch_live
from bench_dispatch_rollouts import measure_dispatch_rollouts
from bench_episodes import measure_episodes
from bench_gateway import measure_gateway
from bench_gateway_peers import measure_gateway_peers
from bench_langgraph import measure_langgraph
from bench_long_tail import measure_long_tail
from bench_rollouts import measure_rollouts
from bench_sandbox import measure_sandbox
from bench_sandbox_bursts import measure_actions, measure_starts
from bench_store_beats import measure_store_beats
from bench_store_costs import measure_store_costs
from bench_store_ingest import measure_store_ingest
from bench_store_live import measure_store_live
from bench_store_memory import measure_store_memory
from bench_store_query import SIZES, measure_store_queries
from bench_store_reindex import measure_store_reindex
from bench_store_size import measure_store_size
from bench_store_text import measure_store_text
from bench_table import Figure, print_figures
from bench_view import measure_view


def main(arguments: Sequence[str]) -> None:
    """Measure each part in a directory of its own, then print."""
    options = _parser().parse_args(arguments)
    figures: list[Figure] = []
    parts = {name: part for name, part in _parts(options.most).items() if name.startswith(tuple(options.parts or [""]))}
    with TemporaryDirectory(prefix="al-bench-", ignore_cleanup_errors=True) as home:
        for number, (name, measure) in enumerate(parts.items()):
            print(f"measuring {name} ({number + 1} of {len(parts)})", file=sys.stderr, flush=True)
            directory = Path(home, str(number))
            directory.mkdir()
            figures += measure(directory)
    print_figures(figures)


def _parts(most: int) -> dict[str, Callable[[Path], list[Figure]]]:
    return {
        "capture": measure_capture,
        "gateway": measure_gateway,
        "gateway beside others": measure_gateway_peers,
        "LangGraph": measure_langgraph,
        "rollouts": lambda directory: measure_rollouts(directory, _write_model(directory / "model")),
        "long tail": measure_long_tail,
        "async training": measure_async_training,
        "sandbox": measure_sandbox,
        "sandbox actions": measure_actions,
        "sandbox starts": measure_starts,
        "episodes": measure_episodes,
        "dispatch": measure_dispatch,
        "dispatch costs": measure_dispatch_costs,
        "dispatch durable": measure_dispatch_durable,
        "dispatch live": measure_dispatch_live,
        "dispatch rollouts": measure_dispatch_rollouts,
        "store ingest": measure_store_ingest,
        "store costs": measure_store_costs,
        "store size": measure_store_size,
        "store reindex": measure_store_reindex,
        "store live": measure_store_live,
        "store heartbeats": measure_store_beats,
        "store memory": measure_store_memory,
        "store text": measure_store_text,
        "view": lambda directory: measure_view(directory, most),
        "store queries": lambda directory: measure_store_queries(directory, [one for one in SIZES if one <= most]),
    }


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="tests/benchmarks", description="measure against peers and floors")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only those that begin so: {', '.join(_parts(0))}")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="trajectories in the store's largest index")
    return parser


def _write_model(path: Path) -> Path:
    """Write the untrained model of the main job."""
    subprocess.run([sys.executable, "-m", "trainer_adapter.demo.model", str(path), "0"], check=True)
    return path


main(sys.argv[1:])
