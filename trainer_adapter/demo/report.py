"""Report of the demo: a table, a plot, and commands that show what it stored."""

# matplotlib is untyped
# pyright: reportUnknownMemberType=false

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from rich.table import Table

from agent_layer.health import StepProgress
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store
from envs.tasksets import chance_without_hints, chance_without_repeats
from trainer_adapter.demo.display import Display, calls_per_second, mean_success
from trainer_adapter.demo.rollout_log import draw_games, read_games

mpl.use("Agg")  # before pyplot chooses a screen

_TREE_VERSIONS = 5
"""Newest policy versions whose games the tree shows."""


def print_report(settings: Settings, display: Display, home: Path, seconds: float) -> None:
    """Print the table and the tree that is played, write the plot, and print the commands."""
    steps, console = display.steps, display.console
    if not steps:
        console.print("no step was done; the same command goes on")
        return
    console.print(_results(display, seconds))
    store = open_store(settings)
    if games := read_games(store, settings.run, steps[-1].policy_version - _TREE_VERSIONS):
        console.print(draw_games(games))
    plot_success(steps, home / "success.png")
    console.print(f"plot: {home / 'success.png'}")
    console.print("\nlook at what it stored:", style="bold")
    for command in _commands(settings, store, steps[-1].policy_version):
        console.print(f"  {command}", soft_wrap=True, highlight=False)


def _commands(settings: Settings, store: Store, newest: int) -> list[str]:
    """Return commands to type unchanged."""
    program = sys.argv[0] if Path(sys.argv[0]).name == "agent-layer" else "agent-layer"
    prefix, run = f"{program} --dir {settings.dir}", settings.run
    last = store.query(run=run, limit=1).items[0].trajectory_id
    return [
        f"{prefix} query --run {run} --task guess-3 --step 1 --policy {max(0, newest - 5)}.. --limit 5",
        f"{prefix} query --run {run} --reward 0.8.. --order reward --limit 5",
        f"{prefix} show {last}",
        f"{prefix} view",
        f"{prefix} store check",
    ]


def plot_success(steps: Sequence[StepProgress], path: Path) -> None:
    """Write the success curve beside the values of chance."""
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    numbers = [step.step for step in steps]
    axes.plot(numbers, [step.success or 0.0 for step in steps], color="tab:blue", alpha=0.35, label="each step")
    axes.plot(
        numbers,
        [mean_success(steps[max(0, at - 4) : at + 1]) for at in range(len(steps))],
        color="tab:blue",
        linewidth=2,
        label="mean of five steps",
    )
    axes.axhline(chance_without_hints(), color="gray", linestyle=":", label="guessing without the hints")
    axes.axhline(chance_without_repeats(), color="gray", linestyle="--", label="…and without repeats")
    axes.set(xlabel="update of the policy", ylabel="hidden number found", ylim=(0, 1.02), title="Guess the number")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _results(display: Display, seconds: float) -> Table:
    steps = display.steps
    table = Table(title="results", show_header=False)
    table.add_row("success, last five steps", f"{mean_success(steps[-5:]):.3f}", style="bold")
    table.add_row("success, untrained (first step)", f"{mean_success(steps[:1]):.3f}")
    table.add_row(
        "chance without hints / without repeats", f"{chance_without_hints():.3f} / {chance_without_repeats():.3f}"
    )
    table.add_row("updates / rollouts / model calls", _counts(steps))
    table.add_row("calls per second, end to end", f"{calls_per_second(steps):.1f}")
    table.add_row("rollouts without a reward", str(sum(step.num_null_rewards for step in steps)))
    table.add_row(
        "staleness, mean / max", f"{_mean(steps, 'staleness_mean'):.2f} / {max(step.staleness_max for step in steps)}"
    )
    gap = max((step.metrics.get("logprob_gap") or 0.0 for step in steps), default=0.0)
    table.add_row("largest gap of log-probabilities, trainer to engine", f"{gap:.1e}")
    for name in ("wait", "update", "switch", "checkpoint"):
        table.add_row(f"seconds of {name}", f"{_sum(steps, f'{name}_seconds'):.1f}")
    table.add_row("seconds in all, this start", f"{seconds:.0f}")
    for name, mib in display.peak_mib.items():
        table.add_row(f"memory of {name}", f"{mib:.0f} MiB")
    return table


def _counts(steps: Sequence[StepProgress]) -> str:
    return f"{len(steps)} / {_sum(steps, 'num_rollouts'):.0f} / {_sum(steps, 'num_calls'):.0f}"


def _sum(steps: Sequence[StepProgress], field: str) -> float:
    return sum(getattr(step, field) for step in steps)


def _mean(steps: Sequence[StepProgress], field: str) -> float:
    return _sum(steps, field) / len(steps)
