"""Time of a whole training run whose tools wait, on-policy and asynchronous: the main job with all its real parts.

Both modes train the same tiny model as often, on the same tasks, seeds and waits, through vLLM on CPU, gateway, worker,
Redis and veRL. They differ only in ``max_staleness``: with 0 a slow tool holds up the whole run, else the groups of the
next steps go on meanwhile. ``bench_long_tail`` measures the schedule alone: its engine is scripted, its trainer updates
nothing, and its agents wait instead of thinking. Here asynchrony also has a price, older samples, and the success of
the last updates shows whether the policy learned as much.

Each run starts all its parts, vLLM too. Their starts are not measured: a run's time is from the start of its first
rollout to the end of its last update.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean, median

import msgspec
from bench_table import Figure
from waiting_agent import HIGHEST, WAITS

from agent_layer.health import StepProgress, progress_path, read_progress
from agent_layer.settings import Settings
from agent_layer.store import open_store
from envs.tasksets import REWARDS
from trainer_adapter.config import AlgorithmConfig, OptimizerConfig, RolloutConfig, Schedule, SourceConfig, TrainConfig
from trainer_adapter.demo.display import mean_success
from trainer_adapter.start import Job, run_job

__all__ = ["measure_async_training"]

STEPS, SEEDS = 30, (0, 1, 2)
GROUP_SIZE = 12
SLOTS = 128
"""More than the rollouts that may be in flight, in both modes: (1 + max_staleness) steps."""
MAX_STALENESS = 2
LEARNING_RATE = Schedule(start=1e-3, end=2e-4, shape="cosine", warmup_steps=4)
HEALTH = {"importance_tail": "off"}
"""So tiny a model changes within two updates by more than the default limit allows, in its first steps; truncated
importance weights answer that, and the success at the end tells whether they do."""
NOISE = 0.05
"""Success by which the asynchronous mode may end lower."""


class _Run(msgspec.Struct, frozen=True):
    """One run that ended."""

    seconds: float
    """From the start of the first rollout to the end of the last update."""
    success: float
    """Share of games won, over the last five updates."""
    staleness: float
    """Mean of the trained tokens."""
    wait_seconds: float
    """Mean wait of the trainer for the groups of an update."""
    load: float
    """Processes that were ready to run when it ended, over the last minute: 2 keep two cores busy."""

    def __str__(self) -> str:
        return (
            f"{self.seconds:.1f} s, success {self.success:.3f}, staleness {self.staleness:.2f}"
            f", trainer waits {self.wait_seconds:.2f} s a step, load {self.load:.1f}"
        )


def measure_async_training(directory: Path, steps: int = STEPS, seeds: Sequence[int] = SEEDS) -> list[Figure]:
    """Train each seed in both modes, one after the other, and compare times and success."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    models = [_write_model(directory / f"model-{seed}", seed) for seed in seeds]
    pairs: list[tuple[_Run, _Run]] = []
    for seed, model in zip(seeds, models, strict=True):
        ahead, sync = (_train(directory, model, seed, steps, most) for most in (MAX_STALENESS, 0))
        pairs.append((sync, ahead))
        print(f"seed {seed}: on-policy {sync}; asynchronous {ahead}", file=sys.stderr, flush=True)
    what = f"training, {steps} updates, max_staleness {MAX_STALENESS}; {WAITS}"
    return [
        *(
            Figure(f"{what}; seed {seed}, s (peer: max_staleness 0)", *_pair(sync.seconds, ahead.seconds), "")
            for seed, (sync, ahead) in zip(seeds, pairs, strict=True)
        ),
        Figure(
            "the same, median of the seeds",
            f"{median(ahead.seconds for _, ahead in pairs):.1f}",
            f"{median(sync.seconds for sync, _ in pairs):.1f}",
            f"{median(sync.seconds / ahead.seconds for sync, ahead in pairs):.2f}",
            "≥ 2",
        ),
        Figure(
            "the same, success of the last five updates, mean of the seeds; ratio: how much lower",
            f"{fmean(ahead.success for _, ahead in pairs):.3f}",
            f"{fmean(sync.success for sync, _ in pairs):.3f}",
            f"{fmean(sync.success - ahead.success for sync, ahead in pairs):+.3f}",
            f"≤ {NOISE}",
        ),
        Figure(
            "the same, mean staleness of the trained tokens, versions",
            f"{fmean(ahead.staleness for _, ahead in pairs):.2f}",
            f"{fmean(sync.staleness for sync, _ in pairs):.2f}",
            "",
            "",
        ),
    ]


def _train(directory: Path, model: Path, seed: int, steps: int, max_staleness: int) -> _Run:
    """Train from nothing in a store of its own; the run has the same name in both modes, so the same waits."""
    home, run = directory / f"{seed}-{max_staleness}", f"waits-{seed}"
    settings = Settings(dir=home, run=run)
    place = home / "runs" / run
    place.mkdir(parents=True)
    _write_tasks(place / "tasks.jsonl", seed)
    config = TrainConfig(
        model=model,
        tasks=[SourceConfig(path=place / "tasks.jsonl")],
        run=run,
        steps=steps,
        seed=seed,
        rollouts=RolloutConfig(group_size=GROUP_SIZE, max_staleness=max_staleness),
        algorithm=AlgorithmConfig(entropy=Schedule(start=0.01)),
        optimizer=OptimizerConfig(learning_rate=LEARNING_RATE, epochs=2, betas=(0.9, 0.95)),
        health=HEALTH,
    )
    with run_job(settings, Job(config=config, target="waiting_agent:play", slots=SLOTS, max_model_len=64)) as running:
        running.wait()
        (first,) = open_store(running.settings).query(run=run, order="oldest", limit=1).items
    began_at = datetime.fromisoformat(first.started_at).timestamp()
    return _summarise(began_at, read_progress(progress_path(settings, run)))


def _summarise(began_at: float, progress: Sequence[StepProgress]) -> _Run:
    if redone := [step.step for step in progress if step.redone_by_task]:
        raise RuntimeError(f"expected the same rollouts in both modes, but groups of the steps {redone} were redone")
    num_tokens = sum(step.num_tokens for step in progress)
    return _Run(
        seconds=progress[-1].ended_at - began_at,
        success=mean_success(progress[-5:]),
        staleness=sum(step.staleness_mean * step.num_tokens for step in progress) / num_tokens,
        wait_seconds=fmean(step.wait_seconds for step in progress),
        load=os.getloadavg()[0],
    )


def _write_model(path: Path, seed: int) -> Path:
    subprocess.run([sys.executable, "-m", "trainer_adapter.demo.model", str(path), str(seed)], check=True)
    return path


def _write_tasks(path: Path, seed: int) -> None:
    rewards = {name: {"weight": weight} for name, weight in REWARDS.items()}
    tasks = [
        {"id": f"guess-{hidden}", "input": {"hidden": hidden}, "seed": seed, "scorer": "agent", "rewards": rewards}
        for hidden in range(1, HIGHEST + 1)
    ]
    path.write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in tasks))


def _pair(theirs: float, ours: float) -> tuple[str, str, str]:
    return f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.2f}"
