"""This file holds ``make bench``: everything is measured in one run on this machine, and one table is printed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_capture import measure_capture
from bench_gateway import measure_gateway
from bench_gateway_peers import measure_gateway_peers
from bench_langgraph import measure_langgraph
from bench_rollouts import measure_rollouts
from bench_table import Figure, print_figures

PARTS: dict[str, Callable[[Path], list[Figure]]] = {
    "capture": measure_capture,
    "gateway": measure_gateway,
    "gateway beside others": measure_gateway_peers,
    "LangGraph": measure_langgraph,
    "rollouts": lambda directory: measure_rollouts(directory, _write_model(directory / "model")),
}


def main() -> None:
    """Measure each part in a directory of its own, then print."""
    figures: list[Figure] = []
    with TemporaryDirectory(prefix="al-bench-", ignore_cleanup_errors=True) as home:
        for number, (name, measure) in enumerate(PARTS.items()):
            print(f"measuring {name} ({number + 1} of {len(PARTS)})", file=sys.stderr, flush=True)
            directory = Path(home, str(number))
            directory.mkdir()
            figures += measure(directory)
    print_figures(figures)


def _write_model(path: Path) -> Path:
    """Write the untrained model of the main job."""
    subprocess.run([sys.executable, "-m", "examples.guess_number.model", str(path), "0"], check=True)
    return path


main()
