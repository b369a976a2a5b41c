"""A training run in several processes that share the model: the first runs the loop, torchrun starts them all."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from agent_layer.health import StepProgress
from agent_layer.settings import Settings
from trainer_adapter.config import TrainConfig
from trainer_adapter.loop import EmbeddedDriver, stop_on_signals, train_run
from trainer_adapter.supervised import Method, SupervisedConfig, SupervisedStep, train_supervised
from trainer_adapter.tasks import TaskSource
from trainer_adapter.verl import (
    EmbeddedTrainer,
    LeadingSupervisedTrainer,
    LeadingTrainer,
    PolicyTrainer,
    SupervisedTrainer,
    follow_leader,
)

_STOP_SECONDS = 600
"""After Ctrl-C, for the present update and its checkpoint."""


def run_rank(
    config: TrainConfig,
    num_ranks: int,
    arguments: Sequence[str],
    trainer: type[EmbeddedTrainer] = EmbeddedTrainer,
    *,
    check: Callable[[], object] = lambda: None,
) -> bool:
    """Take the part of this process; return whether that is done. The process that is to run the loop has it before it.

    A process that torchrun did not start becomes torchrun if there are to be several. A follower repeats the operations
    of the first process, until that ends the run.

    Args:
        config: of the run.
        num_ranks: processes that share the model; below torchrun, that has decided.
        arguments: of the command ``agent-layer``, for the processes.
        trainer: of the run.
        check: raises what is wrong with the input, before there is more than this process: torchrun would bury it.
    """
    if not _is_below_torchrun():
        if num_ranks > 1:
            check()
            _become_torchrun(num_ranks, arguments, config.optimizer.num_threads)
        return False
    if int(os.environ["RANK"]) == 0:
        return False
    with stop_on_signals():  # the first process decides
        follow_leader(trainer(config))
    return True


def train_on_ranks(
    config: TrainConfig,
    settings: Settings,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[StepProgress], None] = lambda _: None,
    *,
    sources: Sequence[TaskSource] | None = None,
) -> list[StepProgress]:
    """Train as ``train_run`` does, in this process and in those that follow it, if torchrun started several."""
    driver = _FirstRank()
    try:
        return train_run(config, settings, stop, report, sources=sources, driver=driver)
    finally:
        driver.end()


def train_supervised_on_ranks(
    config: SupervisedConfig,
    settings: Settings,
    method: Method,
    stop: Callable[[], bool],
    report: Callable[[SupervisedStep], None],
    say: Callable[[str], None],
) -> bool:
    """Train as ``train_supervised`` does, in this process and in those that follow it, if torchrun started several."""
    leading: list[LeadingSupervisedTrainer] = []

    def open_trainer(training: TrainConfig) -> SupervisedTrainer | LeadingSupervisedTrainer:
        if not _is_below_torchrun():
            return SupervisedTrainer(training)
        leading.append(LeadingSupervisedTrainer(training))
        return leading[0]

    try:
        return train_supervised(config, settings, method, stop, report, say, open_trainer=open_trainer)
    finally:
        for one in leading:
            one.end()


def _become_torchrun(num_ranks: int, arguments: Sequence[str], num_threads: int) -> NoReturn:
    os.environ.setdefault("OMP_NUM_THREADS", str(num_threads))  # torchrun warns without it
    options = ["--standalone", f"--nproc-per-node={num_ranks}", f"--shutdown-timeout={_STOP_SECONDS}"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", "agent_layer.cli", *arguments]
    os.execv(sys.executable, command)


def _is_below_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


class _FirstRank(EmbeddedDriver):
    """Driver of the first process; without torchrun it is the embedded driver."""

    def __init__(self) -> None:
        self._trainer: LeadingTrainer | None = None

    def open_trainer(self, config: TrainConfig) -> PolicyTrainer:
        """Return a trainer whose operations the others repeat."""
        if not _is_below_torchrun():
            return EmbeddedTrainer(config)
        self._trainer = LeadingTrainer(config)
        return self._trainer

    def end(self) -> None:
        """Let the others end."""
        if self._trainer is not None:
            self._trainer.end()
