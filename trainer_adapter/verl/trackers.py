"""Trackers: each step's numbers, and the way to its trajectories, for TensorBoard, W&B, MLflow and ClearML.

veRL's ``Tracking`` speaks to them. Each has an instance of its own, so that the failure of one reaches neither the
others nor the run.
"""

import logging
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from math import isfinite
from typing import TypeAlias, cast

import msgspec
from verl.utils.tracking import Tracking

from agent_layer.errors import BadInputError
from agent_layer.health import StepProgress
from agent_layer.settings import Settings
from trainer_adapter.config import TrackerName, TrainConfig

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# veRL carries no types.

log = logging.getLogger(__name__)

_Write: TypeAlias = Callable[[Tracking, str, int], object]


def check_trackers(config: TrainConfig) -> None:
    """Raise BadInputError: the package of a tracker is not installed, or cannot be imported beside the others."""
    for name in config.trackers:
        try:
            import_module(name)
        except ImportError as error:
            raise BadInputError(
                f"trackers: expected the package of {name}, found: {error}; run 'pip install {name}', or leave it out"
                " of 'trackers'"
            ) from error


@contextmanager
def open_trackers(config: TrainConfig, settings: Settings, run: str) -> Generator[Callable[[StepProgress], None]]:
    """Context manager: yields a function that sends a step to all trackers. None of its errors ends the run."""
    warned: set[str] = set()
    places = {
        "TENSORBOARD_DIR": str(settings.dir.absolute() / "runs" / run / "tensorboard"),
        "WANDB_DIR": str(settings.dir.absolute() / "runs" / run),
        "MLFLOW_TRACKING_URI": f"sqlite:///{settings.dir.absolute()}/runs/mlflow.db",
    }
    opened: dict[TrackerName, Tracking] = {}

    def send(progress: StepProgress) -> None:
        note = explain_trajectories(progress, settings)
        for name, tracking in opened.items():
            with _warn_once(name, warned):
                tracking.log(step_numbers(progress), progress.step)
                _WRITE_NOTE[name](tracking, note, progress.step)

    with _defaults(places):
        for name in config.trackers:
            with _warn_once(name, warned):
                tracking = Tracking(settings.namespace, run, name, _options(config))
                if name in tracking.logger:  # veRL goes on without MLflow where its server does not answer
                    opened[name] = tracking
        status = 1
        try:
            yield send
            status = 0
        finally:
            for name, tracking in opened.items():
                with _warn_once(name, warned):
                    tracking.finish(status)


def step_numbers(progress: StepProgress) -> dict[str, float]:
    """Return the known numbers of a step by stable names with one slash at least, which ClearML needs.

    ``train/FIELD`` for each number of the report, ``update/NAME`` for veRL's metrics, ``untrainable/KIND``. Numbers by
    task are left out: tasks may be millions, and the report has them.
    """
    fields = msgspec.structs.asdict(progress)
    del fields["step"], fields["ended_at"]
    named = {f"train/{name}": value for name, value in fields.items()}
    named |= {f"update/{name}": value for name, value in progress.metrics.items()}
    named |= {f"untrainable/{kind}": number for kind, number in progress.untrainable.items()}
    named["train/num_findings"] = len(progress.health)
    return {name: float(value) for name, value in named.items() if isinstance(value, int | float) and isfinite(value)}


def explain_trajectories(progress: StepProgress, settings: Settings) -> str:
    """Return in Markdown which trajectories a step learned from, and how to read them."""
    newest = max(0, progress.policy_version - 1)
    oldest = max(0, newest - progress.staleness_max)
    lines = [
        f"Step {progress.step} of run {progress.run}, in {settings.objects_location}, namespace {settings.namespace}:",
        "",
        f"    agent-layer query --run {progress.run} --policy {oldest}..{newest} --accepted",
        f"    agent-layer replay --run {progress.run} --step {progress.step}",
        *([""] if progress.health else []),
        *(f"* {finding.level}: {finding}" for finding in progress.health),
    ]
    return "\n".join(lines)


def _options(config: TrainConfig) -> dict[str, object]:
    """Return the configuration as trackers show it, with the section in which veRL looks for a proxy; without the
    addresses of alarms, which hold keys.
    """
    shown = cast("dict[str, object]", msgspec.to_builtins(msgspec.structs.replace(config, alarms=[]), enc_hook=str))
    return {"trainer": {}} | shown


@contextmanager
def _warn_once(name: str, warned: set[str]) -> Generator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  # trackers raise what they like, and a run is worth more than its curves
        if name not in warned:
            log.warning("tracker %s: %s: %s; the run goes on without it", name, type(error).__name__, error)
        warned.add(name)


@contextmanager
def _defaults(variables: Mapping[str, str]) -> Generator[None]:
    """Set the environment variables that are not set, during the block."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ |= added
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _note_in_tensorboard(tracking: Tracking, note: str, step: int) -> None:
    tracking.logger["tensorboard"].writer.add_text("trajectories", note, step)


def _note_in_wandb(tracking: Tracking, note: str, step: int) -> None:
    tracking.logger["wandb"].log({"trajectories": note}, step=step)


def _note_in_mlflow(_: Tracking, note: str, step: int) -> None:
    import_module("mlflow").log_text(note, f"trajectories/step-{step:06d}.md")


def _note_in_clearml(_: Tracking, note: str, step: int) -> None:
    del step  # stands in the note
    import_module("clearml").Logger.current_logger().report_text(note, print_console=False)


_WRITE_NOTE: dict[TrackerName, _Write] = {
    "tensorboard": _note_in_tensorboard,
    "wandb": _note_in_wandb,
    "mlflow": _note_in_mlflow,
    "clearml": _note_in_clearml,
}
