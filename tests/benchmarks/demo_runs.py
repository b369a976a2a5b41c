"""Runs the demo over seeds, and prints how often it learned: minimum, median, share at the goal, times.

``python tests/benchmarks/demo_runs.py --seeds 0-9 --times 2 --out DIR``. Ctrl-C stops it at any time; the same command
continues the run that was interrupted, and skips those that ended. Each run that ended is one line of
``DIR/runs.jsonl``; its output, with the tree that it played, is beside it. The store of a run below the goal is kept.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from agent_layer.health import progress_path, read_progress
from agent_layer.settings import Settings
from trainer_adapter.demo.cli import STEPS
from trainer_adapter.demo.display import mean_success

GOAL = 0.93
"""Success of the last five updates that a run must reach."""


class DemoRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run that ended."""

    seed: int
    time: int
    """Which run of this seed, from 0."""
    success: float
    """Share of hidden numbers found, over the last five updates."""
    success_by_task: dict[str, float]
    """Of the last update."""
    seconds: float | None
    """From the command to its end; None: it was interrupted."""
    training_seconds: float
    """From the end of the first update to the end of the last, interruptions included."""
    load: float
    """Processes that were ready to run when it ended, over the last five minutes: 2 keep two cores busy."""
    ended_at: float
    """Seconds since the epoch, UTC."""


def main(arguments: Sequence[str]) -> int:
    """Do the runs that are missing, then print all; return 1 when a run is below the goal."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-9", help="such as 0-9 or 3")
    parser.add_argument("--times", type=int, default=1, help="runs of each seed")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS, help="updates of each run")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    options.out.mkdir(parents=True, exist_ok=True)
    done = _read_runs(options.out)
    try:
        for number in range(options.times):
            for seed in range(int(first), int(last or first) + 1):
                if all((run.seed, run.time) != (seed, number) for run in done):
                    done.append(_run_demo(options.out, seed, number, options.steps))
                    print(_describe_run(done[-1]), flush=True)
    except KeyboardInterrupt:
        print("stopped; the same command continues")
    return _summarise(done)


def _run_demo(out: Path, seed: int, number: int, steps: int) -> DemoRun:
    """Run the demo, or continue it where it was interrupted.

    Raises: KeyboardInterrupt: it was stopped, and has saved what it learned.
    """
    name = f"seed-{seed}-{number}"
    home, is_first, began = out / name, not (out / name).exists(), time.monotonic()
    command = [sys.executable, "-m", "agent_layer.cli", "--dir", str(home), "demo", "--seed", str(seed)]
    with (out / f"{name}.log").open("ab") as log:
        demo = subprocess.Popen([*command, "--steps", str(steps)], stdout=log, stderr=log, start_new_session=True)
        try:
            status = demo.wait()
        except KeyboardInterrupt:
            demo.send_signal(signal.SIGTERM)
            demo.wait()
            raise
    seconds = time.monotonic() - began
    progress = read_progress(progress_path(Settings(dir=home), f"demo-{seed}"))
    if status or len(progress) < steps:
        raise SystemExit(f"{name}: expected {steps} updates, found {len(progress)} and status {status}; see {name}.log")
    run = DemoRun(
        seed=seed,
        time=number,
        success=round(mean_success(progress[-5:]), 4),
        success_by_task=progress[-1].success_by_task,
        seconds=round(seconds, 1) if is_first else None,
        training_seconds=round(progress[-1].ended_at - progress[0].ended_at, 1),
        load=round(os.getloadavg()[1], 1),
        ended_at=time.time(),
    )
    with (out / "runs.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(run) + b"\n")
    shutil.copy(home / "runs" / f"demo-{seed}" / "success.png", out / f"{name}.png")
    if run.success >= GOAL:
        _remove_store(home)
    return run


def _remove_store(home: Path) -> None:
    """Remove a store whose embedded Redis may still be ending, since it outlives its last user by a moment."""
    ends_at = time.monotonic() + 60
    while home.exists():
        shutil.rmtree(home, ignore_errors=time.monotonic() < ends_at)
        time.sleep(0.2)


def _read_runs(out: Path) -> list[DemoRun]:
    path = out / "runs.jsonl"
    return [msgspec.json.decode(line, type=DemoRun) for line in path.read_bytes().splitlines()] if path.exists() else []


def _describe_run(run: DemoRun) -> str:
    took = "interrupted" if run.seconds is None else f"{run.seconds:.0f} s"
    return f"seed {run.seed}  run {run.time}  success {run.success:.3f}  {took}  load {run.load}"


def _summarise(runs: Sequence[DemoRun]) -> int:
    if not runs:
        return 0
    found = [run.success for run in runs]
    num_reached = sum(success >= GOAL for success in found)
    print(f"\n{len(runs)} runs: minimum {min(found):.3f}, median {median(found):.3f}", end="")
    print(f", at least {GOAL:g} in {num_reached} ({num_reached / len(runs):.0%})")
    if seconds := [run.seconds for run in runs if run.seconds is not None]:
        print(f"seconds: {min(seconds):.0f} to {max(seconds):.0f}, median {median(seconds):.0f}")
    return int(num_reached < len(runs))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
