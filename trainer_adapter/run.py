"""This file holds a training run: its parts are opened, its newest checkpoint is found, its loop runs."""

import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType

import msgspec

from agent_layer.dispatcher.client import Dispatcher
from agent_layer.dispatcher.tasks import read_tasks
from agent_layer.recorder.log import open_recorder
from agent_layer.schema.task import Task
from agent_layer.settings import Settings
from agent_layer.store.clients import open_redis
from agent_layer.store.store import open_store
from trainer_adapter.checkpoint import Cursor, newest_checkpoint
from trainer_adapter.config import TrainConfig
from trainer_adapter.embedded import EmbeddedTrainer
from trainer_adapter.groups import GroupFeed
from trainer_adapter.loop import TrainingLoop
from trainer_adapter.progress import StepProgress, append_progress, progress_path
from trainer_adapter.weights import WeightPublisher

__all__ = ["stop_on_signals", "train_run"]


def train_run(
    config: TrainConfig,
    settings: Settings,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[StepProgress], None] = lambda _: None,
) -> list[StepProgress]:
    """Train until the run has ``config.steps`` steps, going on from its newest checkpoint.

    Args:
        config: what to train, and how.
        settings: where everything lives.
        stop: asked often; once true, the run ends with a checkpoint.
        report: told each step, after its line is in ``progress_path``.

    Returns: reports of the steps that this call did.

    Raises:
        BadInputError: the tasks or the model cannot be used.
        CaptureError: a rollout lacks token ids.
        EngineError: weights could not be switched.
    """
    run = config.run or settings.run
    redis, recorder = open_redis(settings), open_recorder(settings)
    tasks = [_at_temperature(task, config.rollouts.temperature) for task in read_tasks(config.tasks, run=run)]
    found = newest_checkpoint(settings, run)
    cursor = found[1] if found else Cursor()
    publisher = WeightPublisher(settings, run, redis, recorder)
    publisher.register_base(config.model)
    feed = GroupFeed(run, tasks, config.rollouts, Dispatcher(redis, settings), open_store(settings), cursor)
    feed.ask()
    trainer = EmbeddedTrainer(config)
    if found:
        trainer.load(found[0])
    policy_version = _serve(publisher, trainer, config, cursor)
    loop = TrainingLoop(config, settings, run, feed, trainer, publisher)
    reports: list[StepProgress] = []
    for progress in loop.run(cursor.step, policy_version, stop):
        append_progress(progress_path(settings, run), progress)
        reports.append(progress)
        report(progress)
    recorder.flush(settings.flush_seconds)
    return reports


@contextmanager
def stop_on_signals(
    numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> Generator[Callable[[], bool]]:
    """Give a question that is answered yes once one of the signals has come; a second one ends at once."""
    came: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        came.append(number)
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, remember) for number in numbers}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve(publisher: WeightPublisher, trainer: EmbeddedTrainer, config: TrainConfig, cursor: Cursor) -> int:
    """Make sure that the newest version is that of the trainer's weights; after a kill, later ones were published."""
    newest = publisher.newest()
    if newest is None or newest.number == cursor.policy_version:
        return cursor.policy_version
    return publisher.publish(trainer.weights(), config.model, cursor.step).number


def _at_temperature(task: Task, temperature: float | None) -> Task:
    if temperature is None:
        return task
    return msgspec.structs.replace(task, sampling={**task.sampling, "temperature": temperature})
