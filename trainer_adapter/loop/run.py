"""A training run: opens its parts, loads its newest checkpoint, and runs its loop."""

import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

import msgspec
from redis import Redis

from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import BadInputError
from agent_layer.health import (
    StepProgress,
    append_progress,
    open_notifier,
    progress_path,
    read_progress,
    read_restarts,
    restarts_path,
)
from agent_layer.infra import open_redis
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.schema import UNREADABLE, JsonObject
from agent_layer.settings import Settings
from agent_layer.store import open_store
from trainer_adapter.config import TrainConfig
from trainer_adapter.data import ModelBounds, read_bounds
from trainer_adapter.loop.checkpoint import CheckpointDirectory, Cursor, hold_run
from trainer_adapter.loop.feed import GroupFeed
from trainer_adapter.loop.held_out import HeldOutEvaluation
from trainer_adapter.loop.loop import TrainingLoop
from trainer_adapter.loop.resumed import list_fixed_options, refuse_changes
from trainer_adapter.loop.row_memory import memory_path, read_row_memory
from trainer_adapter.loop.run_lock import claim_run
from trainer_adapter.loop.vocabulary import keep_vocabulary
from trainer_adapter.model_sizes import check_model
from trainer_adapter.tasks import (
    DrawJournal,
    MixFile,
    TaskSource,
    TaskStream,
    journal_path,
    mix_path,
    open_held_out,
    open_training_sources,
    read_exclusions,
)
from trainer_adapter.teacher import open_teacher
from trainer_adapter.verl import (
    EmbeddedTrainer,
    PolicyTrainer,
    WeightPublisher,
    check_num_processes,
    check_trackers,
    check_verl_options,
    open_trackers,
)


class Driver(Protocol):
    """What trains the policy and serves its versions: this process, or a cluster."""

    def open_publisher(self, settings: Settings, run: str, redis: Redis, recorder: Recorder) -> WeightPublisher:
        """Return what registers versions and lets engines serve them."""
        ...

    def open_trainer(self, config: TrainConfig) -> PolicyTrainer:
        """Return what updates the policy, with the first weights."""
        ...


class EmbeddedDriver:
    """Driver in this process."""

    def open_publisher(self, settings: Settings, run: str, redis: Redis, recorder: Recorder) -> WeightPublisher:
        """Return a publisher that writes directories for engines to load."""
        return WeightPublisher(settings, run, redis, recorder)

    def open_trainer(self, config: TrainConfig) -> PolicyTrainer:
        """Return a trainer inside this process."""
        return EmbeddedTrainer(config)


def train_run(
    config: TrainConfig,
    settings: Settings,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[StepProgress], None] = lambda _: None,
    *,
    sources: Sequence[TaskSource] | None = None,
    driver: Driver | None = None,
) -> list[StepProgress]:
    """Train until the run has ``config.steps`` steps, from its newest checkpoint if there is one.

    Args:
        config: what to train, and how.
        settings: locations of state.
        stop: polled; once True, the run ends with a checkpoint.
        report: called for each step, after its line is in ``progress_path``.
        sources: of ``config.tasks``, opened; None: this call opens them.
        driver: trains and serves; None: this process.

    Returns:
        reports of the steps that this call did.

    Raises:
        BadInputError: model, tasks, trackers, alarms, teacher or a key of veRL cannot be used, another trainer runs, or
            an option differs from the checkpoint that must not (``resumed.FIXED``).
        CaptureError: a rollout lacks token ids.
        EngineError: weights could not be switched, or a teacher returns no log-probabilities.
        UnreachableError: a teacher does not answer.
        AgentLayerError: the run is not healthy (``TrainConfig.health``), or its groups do not come.
    """
    run = config.run or settings.run
    check_run(config, settings)
    with (
        hold_run(settings, run),
        open_notifier(settings, config.alarms) as notifier,
        open_trackers(config, settings, run) as track,
        open_redis(settings) as redis,
        claim_run(redis, settings, run),
    ):
        recorder, left_out = open_recorder(settings), open_held_out(config.held_out_sets, settings, run)
        teacher, checkpoints = open_teacher(config, settings), CheckpointDirectory(settings, run)
        directory, cursor, fixed = _find_start(checkpoints, config, run)
        driver = driver or EmbeddedDriver()
        publisher = driver.open_publisher(settings, run, redis, recorder)
        publisher.register_base(config.model)
        stream = TaskStream(
            sources or open_training_sources(config, settings),
            cursor.tasks,
            mix=MixFile(mix_path(settings, run)),
            journal=DrawJournal(journal_path(settings, run), cursor.num_asked),
            filters=[*config.filters, *read_exclusions(settings, run)],
            held_out=left_out,
            seed=config.seed,
        )
        dispatcher, store = Dispatcher(redis, settings), open_store(settings)
        keep_vocabulary(config.model, store.keys, store.objects)
        held_out = config.evaluation and HeldOutEvaluation(config.evaluation, run, store, dispatcher, publisher)
        feed = GroupFeed(run, stream, config, dispatcher, store, cursor)
        newest = publisher.newest()
        # before the model loads: workers need not wait for it
        feed.submit_groups(newest if cursor.policy_version == newest else newest + 1, cursor.step)
        trainer = driver.open_trainer(config)
        if directory:
            trainer.load(directory)
        path, reports = progress_path(settings, run), list[StepProgress]()
        loop = TrainingLoop(
            run,
            config,
            feed,
            trainer,
            publisher,
            checkpoints,
            fixed=fixed,
            bounds=msgspec.structs.replace(
                read_model_bounds(config.model), max_fitting=read_row_memory(memory_path(settings, run))
            ),
            memory_path=memory_path(settings, run),
            held_out=held_out,
            held_out_tasks=left_out.held_out,
            teacher=teacher,
            restarts_since=partial(read_restarts, restarts_path(settings, run)),
            judged=notifier.judge_step,
        )
        for progress in loop.run(cursor, stop, read_progress(path)):
            append_progress(path, progress)
            reports.append(progress)
            track(progress)
            report(progress)
        recorder.flush(settings.flush_seconds)
        return reports


def check_run(config: TrainConfig, settings: Settings, num_processes: int | None = None) -> None:
    """Raise BadInputError for a configuration that cannot train, or cannot go on from the run's newest checkpoint.

    Args:
        config: what to train, and how; ``open_training_sources`` looks at its tasks.
        settings: locations of state.
        num_processes: that share the model; None: not looked at.
    """
    run = config.run or settings.run
    check_model(config.model)
    check_verl_options(config.verl)
    check_trackers(config)
    read_model_bounds(config.model)
    directory, _, _ = _find_start(CheckpointDirectory(settings, run), config, run)
    if directory and num_processes is not None:
        check_num_processes(directory, num_processes)


def _find_start(
    checkpoints: CheckpointDirectory, config: TrainConfig, run: str
) -> tuple[Path | None, Cursor, dict[str, str]]:
    """Return the newest checkpoint, its position, and what the run must keep."""
    directory, cursor = checkpoints.newest() or (None, Cursor())
    fixed = list_fixed_options(config)
    if directory:
        refuse_changes(fixed, directory, run)
    return directory, cursor, fixed


@contextmanager
def stop_on_signals(
    numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> Generator[Callable[[], bool]]:
    """Context manager: yields a function that returns True after one of the signals; a second signal ends at once."""
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


def read_model_bounds(model: Path) -> ModelBounds:
    """Return the bounds that a model's config.json names.

    Raises: BadInputError: it cannot be read.
    """
    try:
        return read_bounds(msgspec.json.decode((model / "config.json").read_bytes(), type=JsonObject))
    except (OSError, *UNREADABLE) as error:
        raise BadInputError(
            f"model {model}: expected a readable config.json, found {error}; correct 'model'"
        ) from error
