"""Trains the demo's game with the embedded driver and on Ray, over seeds, and compares what the two made of it.

``python tests/benchmarks/driver_runs.py --out DIR [--runs 10] [--steps 4]``. Both drivers train the demo's game from
the same untrained model of each seed, on Ray in mode ``sync``. Ctrl-C stops it at any time; the same command skips the
runs that ended, and starts the one that was interrupted again. Each run that ended is one line of ``DIR/runs.jsonl``.

The test is exact: under the hypothesis that the driver does not matter, the two runs of each seed can be exchanged.
``p`` is the share of all ways to exchange them in which the statistic is as large as it was found. The interval of a
difference holds 95 % of the differences that draws of as many seeds from these give (bootstrap).
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, product
from pathlib import Path
from statistics import fmean, median
from typing import Literal, TypeAlias, get_args

import msgspec
from rich.console import Console
from rich.table import Table

from agent_layer.health import progress_path, read_progress
from agent_layer.settings import Settings
from agent_layer.store import list_batches, open_store
from trainer_adapter.config import ClusterConfig
from trainer_adapter.demo.job import RECIPE, make_config, write_tasks
from trainer_adapter.start import Job, run_job

Driver: TypeAlias = Literal["embedded", "ray"]

_CONTEXT = 64
_RUN = "drivers"
_DRAWS = 4000
_EXACT = 1e-12
"""Sums of the same numbers in another order differ by less."""


class DriverRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run that ended."""

    driver: Driver
    seed: int
    num_rollouts: int
    """All that were played, trained or not."""
    rewards: list[list[float]]
    """Of each trained rollout, by step and in the order of the batch."""
    tokens: list[list[int]]
    """The same, sampled tokens."""
    success: list[float]
    """By step, as the demo counts it."""
    seconds: float
    """From the start of the first process to the end of the last."""
    load: float
    """Processes that were ready to run when it ended, over the last five minutes."""

    @property
    def num_trained(self) -> int:
        """Rollouts that were learned from."""
        return sum(map(len, self.rewards))


Pair: TypeAlias = tuple[DriverRun, DriverRun]
"""The embedded driver's run of a seed, and that on Ray."""


def main(arguments: Sequence[str]) -> int:
    """Do the runs that are missing, then compare all."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10, help="of each driver; their seeds are 0 to RUNS - 1")
    parser.add_argument("--steps", type=int, default=4, help="updates of each run")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    done = _read_runs(options.out)
    try:
        for seed, driver in product(range(options.runs), get_args(Driver)):
            if (driver, seed) not in done:
                done[driver, seed] = run = _train(options.out, driver, seed, options.steps)
                print(_describe(run), flush=True)
    except KeyboardInterrupt:
        print("stopped; the same command continues")
    seeds = sorted(seed for driver, seed in done if driver == "ray" and ("embedded", seed) in done)
    _compare([(done["embedded", seed], done["ray", seed]) for seed in seeds])
    return 0


def _train(out: Path, driver: Driver, seed: int, steps: int) -> DriverRun:
    home, began = out / f"{driver}-{seed}", time.monotonic()
    _remove(home)  # of a run that was interrupted
    home.mkdir()
    subprocess.run([sys.executable, "-m", "trainer_adapter.demo.model", home / "model", str(seed)], check=True)
    write_tasks(home / "tasks.jsonl")
    config = make_config(home, _RUN, seed, steps)
    config = msgspec.structs.replace(config, cluster=ClusterConfig(mode="sync", max_model_len=_CONTEXT))
    settings = Settings(dir=home / "data", run=_RUN)
    job = Job(
        config=config,
        target=RECIPE.target,
        slots=RECIPE.slots,
        max_model_len=_CONTEXT,
        on_ray=driver == "ray",
    )
    with run_job(settings, job) as running:
        running.wait()
    run = _read_run(settings, driver, seed, time.monotonic() - began)
    if len(run.rewards) != steps:
        raise SystemExit(
            f"{home.name}: expected {steps} updates, found {len(run.rewards)}; see {settings.dir / 'logs'}"
        )
    with (out / "runs.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(run) + b"\n")
    _remove(home)
    return run


def _read_run(settings: Settings, driver: Driver, seed: int, seconds: float) -> DriverRun:
    store = open_store(settings)
    rewards: list[list[float]] = []
    tokens: list[list[int]] = []
    for batch in list_batches(store.redis, store.keys, _RUN):
        trained = [store.get(one.trajectory_id).trained for one in batch.rollouts]
        rewards.append([one.reward for one in batch.rollouts])
        tokens.append([sum(len(one.logprobs) for one in found if one.batch_id == batch.batch_id) for found in trained])
    return DriverRun(
        driver=driver,
        seed=seed,
        num_rollouts=store.count(run=_RUN),
        rewards=rewards,
        tokens=tokens,
        success=[round(step.success or 0.0, 4) for step in read_progress(progress_path(settings, _RUN))],
        seconds=round(seconds, 1),
        load=round(os.getloadavg()[1], 1),
    )


def _remove(home: Path) -> None:
    """Remove a run whose embedded Redis may still be ending, since it outlives its last user by a moment."""
    ends_at = time.monotonic() + 60
    while home.exists():
        shutil.rmtree(home, ignore_errors=time.monotonic() < ends_at)
        time.sleep(0.2)


def _read_runs(out: Path) -> dict[tuple[Driver, int], DriverRun]:
    with suppress(FileNotFoundError):
        found = [msgspec.json.decode(one, type=DriverRun) for one in (out / "runs.jsonl").read_bytes().splitlines()]
        return {(one.driver, one.seed): one for one in found}
    return {}


def _describe(run: DriverRun) -> str:
    rewards = " ".join(f"{fmean(step):.3f}" for step in run.rewards)
    return f"{run.driver:8}  seed {run.seed}  rewards {rewards}  {run.seconds:.0f} s  load {run.load}"


def _compare(pairs: Sequence[Pair]) -> None:
    if not pairs:
        return
    title = f"{len(pairs)} runs of each driver: median (range)"
    table = Table("what, of a run", "embedded", "on Ray", "difference of means (95 %)", "p", title=title)
    for name, measure in _measures(min(len(run.rewards) for pair in pairs for run in pair)):
        embedded, on_ray = ([measure(run) for run in runs] for runs in zip(*pairs, strict=True))
        differences = [other - one for one, other in zip(embedded, on_ray, strict=True)]
        low, high = interval_of_mean(differences)
        found = f"{fmean(differences):+.3f} ({low:+.3f} to {high:+.3f})"
        table.add_row(
            name, _describe_range(embedded), _describe_range(on_ray), found, f"{exchange_test(differences):.3f}"
        )
    for name, values in (("rewards", _count_rewards), ("tokens", _count_tokens)):
        distance, p = compare_distributions([(values(one), values(other)) for one, other in pairs])
        table.add_row(f"{name} of all rollouts, largest distance", "", "", f"{distance:.4f}", f"{p:.3f}")
    Console(width=160).print(table)
    num_same = sum(_first_rollouts(one) == _first_rollouts(other) for one, other in pairs)
    print(f"the same rollouts in the first step, by reward and tokens: {num_same} of {len(pairs)} seeds")
    for driver, runs in zip(get_args(Driver), zip(*pairs, strict=True), strict=True):
        print(f"seconds of a run, {driver}: {_describe_range([run.seconds for run in runs])}")


def _measures(num_steps: int) -> Iterator[tuple[str, Callable[[DriverRun], float]]]:
    yield "rollouts played", lambda run: run.num_rollouts
    yield "rollouts trained", lambda run: run.num_trained
    yield "tokens of a rollout", lambda run: fmean(_expand(_count_tokens(run)))
    yield "reward", lambda run: fmean(_expand(_count_rewards(run)))
    for step in range(num_steps):
        yield f"reward, step {step + 1}", lambda run, step=step: fmean(run.rewards[step])
    yield "success, last step", lambda run: run.success[num_steps - 1]


def _first_rollouts(run: DriverRun) -> list[tuple[float, int]]:
    return sorted(zip(run.rewards[0], run.tokens[0], strict=True))


def _count_rewards(run: DriverRun) -> Counter[float]:
    return Counter(reward for step in run.rewards for reward in step)


def _count_tokens(run: DriverRun) -> Counter[float]:
    return Counter(float(tokens) for step in run.tokens for tokens in step)


def _expand(counts: Counter[float]) -> list[float]:
    return list(counts.elements())


def _describe_range(values: Sequence[float]) -> str:
    return f"{median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def interval_of_mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the bounds of 95 % of the means of as many values, drawn from these."""
    chance = random.Random(0)
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(_DRAWS))
    return means[_DRAWS // 40], means[-_DRAWS // 40]


def exchange_test(differences: Sequence[float]) -> float:
    """Return the share of all sign changes of paired differences whose sum is as far from 0 as without a change."""
    signs = product((1, -1), repeat=len(differences))
    sums = [abs(sum(sign * one for sign, one in zip(changed, differences, strict=True))) for changed in signs]
    return fmean(one >= sums[0] - _EXACT for one in sums)


def compare_distributions(pairs: Sequence[tuple[Counter[float], Counter[float]]]) -> tuple[float, float]:
    """Return the largest distance of two cumulative distributions (Kolmogorov and Smirnov), and its p.

    Args:
        pairs: how often each driver's run of a seed had each value. Rollouts of one run share weights, so whole runs
            are exchanged, not rollouts.
    """
    places = sorted({value for pair in pairs for counts in pair for value in counts})
    rows = [tuple([counts[place] for place in places] for counts in pair) for pair in pairs]
    exchanges = product((0, 1), repeat=len(rows))
    distances = [
        _distance(
            zip(*(row[::-1] if is_other else row for row, is_other in zip(rows, exchanged, strict=True)), strict=True)
        )
        for exchanged in exchanges
    ]
    return distances[0], fmean(distance >= distances[0] - _EXACT for distance in distances)


def _distance(rows: Iterable[Sequence[Sequence[int]]]) -> float:
    """Largest distance of two cumulative distributions, each the sum of histograms over the same values."""
    one, other = ([count / sum(map(sum, counts)) for count in map(sum, zip(*counts, strict=True))] for counts in rows)
    return max(abs(a - b) for a, b in zip(accumulate(one), accumulate(other), strict=True))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
