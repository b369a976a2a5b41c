"""This file holds ``make bench``: everything is measured in one run on this machine, and one table is printed."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_gateway import measure_gateway
from bench_langgraph import measure_langgraph
from bench_rollouts import measure_rollouts
from bench_table import print_figures


def main() -> None:
    """Measure, then print."""
    with TemporaryDirectory(prefix="al-bench-", ignore_cleanup_errors=True) as home:
        directory = Path(home)
        model = directory / "model"
        subprocess.run([sys.executable, "-m", "examples.guess_number.model", str(model), "0"], check=True)
        figures = [*measure_gateway(directory), *measure_langgraph(directory), *measure_rollouts(directory, model)]
        print_figures(figures)


main()
