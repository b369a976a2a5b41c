"""Runs ``.ci/run`` in a fresh clone of a commit, and writes what came of it into ``docs/internals/tests.md``.

    .venv/bin/python .ci/whole_run.py [COMMIT]              on a quiet machine, for a figure that means something
    .venv/bin/python .ci/whole_run.py --beside-load         while a second suite runs in another clone
    .venv/bin/python .ci/whole_run.py --command 'make test-all'
    .venv/bin/python .ci/whole_run.py --sum build/tally.jsonl    add up what the parts of a run wrote

Each run adds a row, and none is ever removed, except by hand.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import msgspec

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "internals" / "tests.md"
HEAD = """# Tests: minutes, and how certain they are

`.ci/whole_run.py` writes this page. It runs the command in a fresh clone and adds a row, whatever the result.
A *flaky* name failed because a wait expired, and passed when it ran again, alone and once.
A *red* name failed otherwise.
Neither may stay: what was seen is mended or removed on the day.

## Whole runs

| date (UTC) | commit | command | machine, load | minutes | passed, failed, skipped | flaky or red |
|---|---|---|---|---|---|---|
"""

MAX_NAMES = 3
"""Names of flaky and red tests in a row; the log has all."""


class Part(msgspec.Struct, frozen=True):
    """A line of the tally: what one pytest of a run counted (``tests/reruns.py``)."""

    passed: int
    failed: int
    skipped: int
    flaky: list[str]
    reds: list[str]
    seconds: float
    folders: dict[str, tuple[int, float]]
    slowest: list[tuple[float, str]]


def read_parts(tally: Path) -> list[Part]:
    """Return the parts that have ended; none if nothing was tested."""
    lines = tally.read_bytes().splitlines() if tally.exists() else []
    return [msgspec.json.decode(line, type=Part) for line in lines]


def describe_counts(parts: list[Part]) -> str:
    """Return the counts of all parts as the last line of a run."""
    passed, failed, skipped = (sum(getattr(part, name) for part in parts) for name in ("passed", "failed", "skipped"))
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def print_sum(tally: Path) -> None:
    """Print the last lines of a run of several parts."""
    parts = read_parts(tally)
    for name in (name for part in parts for name in part.flaky):
        print(f"flaky: {name}")
    print(describe_counts(parts))


@contextmanager
def _second_suite(clone: Path) -> Iterator[None]:
    """Run ``make test`` in a clone over and over, for as long as the other run takes."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    subprocess.run(["make", "setup"], cwd=clone, check=True, stdout=subprocess.DEVNULL)
    command = ["bash", "-c", "while true; do make test; done"]
    with (clone / "load.log").open("wb") as log:
        suite = subprocess.Popen(command, cwd=clone, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(suite.pid, signal.SIGTERM)
        suite.wait(60)


def _watch_load(loads: list[float], ended: threading.Event) -> None:
    while not ended.wait(10):
        loads.append(os.getloadavg()[0])


def run_whole(commit: str, command: list[str], *, beside_load: bool) -> int:
    """Run the command in a fresh clone, add its row, and write the page; returns the exit status."""
    place = Path(tempfile.mkdtemp(prefix="whole-run-"))
    clone, log_path = place / "clone", place / "log"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    subprocess.run(["git", "checkout", "-q", commit], cwd=clone, check=True)
    name = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=clone, text=True).strip()
    tally = clone / "build" / "tally.jsonl"
    tally.parent.mkdir()
    loads, ended = [os.getloadavg()[0]], threading.Event()
    threading.Thread(target=_watch_load, args=(loads, ended), daemon=True).start()
    with _second_suite(place / "load") if beside_load else _nothing(), log_path.open("wb") as log:
        print(f"{shlex.join(command)} in {clone}; its output goes to {log_path}")
        began, variables = time.monotonic(), os.environ | {"TEST_TALLY": str(tally)}
        done = subprocess.run(command, cwd=clone, stdout=log, stderr=log, env=variables, check=False)
        minutes = (time.monotonic() - began) / 60
    ended.set()
    parts = read_parts(tally)
    faults = [f"flaky `{name}`" for part in parts for name in part.flaky]
    faults += [f"red `{name}`" for part in parts for name in part.reds]
    if len(faults) > MAX_NAMES:
        faults[MAX_NAMES:] = [f"and {len(faults) - MAX_NAMES} more"]
    if done.returncode:
        faults.append(f"exit status {done.returncode}")
    beside = ", beside a second suite" if beside_load else ""
    num_cores, mean = len(os.sched_getaffinity(0)), fmean(loads)
    cells = [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        name,
        f"`{shlex.join(command)}`",
        f"{num_cores} cores, load {min(loads):.1f} to {max(loads):.1f}, mean {mean:.1f}{beside}",
        f"{minutes:.1f}",
        describe_counts(parts),
        "; ".join(faults) or "none",
    ]
    write_page(f"| {' | '.join(cells)} |", parts)
    print(cells)
    if not done.returncode:
        shutil.rmtree(place)
    return done.returncode


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def write_page(row: str, parts: list[Part]) -> None:
    """Add a row to the page, and replace the tables that show the last run."""
    old = PAGE.read_text().splitlines() if PAGE.exists() else []
    rows = [line for line in old if line.startswith("| 20") and line[6:7] == "-"] + [row]
    folders: dict[str, tuple[int, float]] = {}
    for part in parts:
        for folder, (num_tests, seconds) in part.folders.items():
            name = "/".join(folder.split("/")[:3])
            sum_tests, sum_seconds = folders.get(name, (0, 0.0))
            folders[name] = sum_tests + num_tests, sum_seconds + seconds
    by_seconds = sorted(folders.items(), key=lambda one: -one[1][1])
    slowest = sorted((one for part in parts for one in part.slowest), reverse=True)[:10]
    lines = [
        "",
        "## The last of them, by folder",
        "",
        "Seconds are those of all processes together, with fixtures.",
        "",
        "| folder | tests | seconds |",
        "|---|---|---|",
        *(f"| `{name}` | {num_tests} | {seconds:.0f} |" for name, (num_tests, seconds) in by_seconds),
        "",
        "## Its ten slowest",
        "",
        "| seconds | test |",
        "|---|---|",
        *(f"| {seconds:.0f} | `{name.removeprefix('tests/')}` |" for seconds, name in slowest),
    ]
    PAGE.write_text(HEAD + "\n".join(rows + lines) + "\n")


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--beside-load", action="store_true", help="run a second suite beside it")
    parser.add_argument("--command", default=".ci/run", help="what is run in the clone")
    parser.add_argument("--sum", type=Path, metavar="TALLY", help="only add up the parts of a run")
    given = parser.parse_args()
    if given.sum:
        print_sum(given.sum)
        return 0
    return run_whole(given.commit, shlex.split(given.command), beside_load=given.beside_load)


if __name__ == "__main__":
    sys.exit(main())
