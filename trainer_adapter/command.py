"""This file holds the commands of this package: ``train``, and ``replay`` from beside it."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agent_layer.errors import BadInputError
from agent_layer.settings import Settings
from trainer_adapter import replay_command
from trainer_adapter.config import load_config
from trainer_adapter.progress import StepProgress

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("train")(train)
    replay_command.register(app)


def train(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(help="YAML, TOML or JSON file; every knob is in trainer_adapter/config.py.")
    ],
) -> None:
    """Train a policy on the rollouts of running workers; goes on from the run's newest checkpoint.

    Needs a gateway with a vLLM engine ('agent-layer up') and a worker ('agent-layer work'). Ctrl-C ends it after the
    update at hand, with a checkpoint; a second Ctrl-C ends it at once.
    """
    loaded = load_config(config)
    settings: Settings = context.obj
    try:
        from trainer_adapter.run import stop_on_signals, train_run  # noqa: PLC0415  # torch and veRL take seconds
    except ModuleNotFoundError as error:
        raise BadInputError(
            f"command 'train': expected torch and veRL to be installed, found no {error.name!r}; install torch first,"
            " then agent-layer[train]"
        ) from error
    console = Console()
    with stop_on_signals() as stop:
        done = train_run(loaded, settings, stop, lambda progress: console.print(_line(progress)))
    console.print(f"{len(done)} steps done; 'agent-layer train {config}' goes on where this ended")


def _line(progress: StepProgress) -> str:
    return f"{_result(progress)}{_groups(progress)}"


def _result(progress: StepProgress) -> str:
    success = "-" if progress.success is None else f"{progress.success:.2f}"
    reward = "-" if progress.reward_mean is None else f"{progress.reward_mean:+.3f}"
    return (
        f"step {progress.step:4d}  version {progress.policy_version:4d}  success {success}  reward {reward}"
        f"  staleness {progress.staleness_mean:.2f}  calls {progress.num_calls}"
        f"  seconds: wait {progress.wait_seconds:.1f} update {progress.update_seconds:.1f}"
        f" switch {progress.switch_seconds:.2f}"
    )


def _groups(progress: StepProgress) -> str:
    """What became of its groups, where that is worth a word."""
    short, dropped, surplus = progress.num_short_groups, progress.num_dropped_groups, progress.num_surplus_rollouts
    told = f"  groups: short {short} dropped {dropped}" if short + dropped else ""
    if progress.kept_seconds is None or progress.surplus_seconds is None:
        return told
    return f"{told}  kept {progress.kept_seconds:.1f} s, surplus of {surplus} {progress.surplus_seconds:.1f} s"
