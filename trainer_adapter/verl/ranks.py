"""One model in several processes: the first announces each operation before it begins it, the others repeat it.

Each process has a part of the model, so each operation needs all of them. Checkpoints have a part of each process: all
need the same file system.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar, cast

import torch.distributed
from torch import Tensor
from torch.distributed import ProcessGroup

from trainer_adapter.config import TrainConfig
from trainer_adapter.data import TrainingBatch
from trainer_adapter.verl.trainer import EmbeddedTrainer, UpdateReport
from trainer_adapter.verl.weights import PublishedWeights

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# Much of torch.distributed carries no types.

_Result = TypeVar("_Result")
_MAX_WAIT = timedelta(days=30)
"""Wait for the next operation: rollouts, evaluations and pauses may take their time. A process that dies ends it at
once."""


class _Update(NamedTuple):
    batch: TrainingBatch
    step: int
    version: int


class _ReadWeights(NamedTuple):
    pass


class _Save(NamedTuple):
    directory: Path


class _Load(NamedTuple):
    directory: Path


class _End(NamedTuple):
    pass


_Operation: TypeAlias = _Update | _ReadWeights | _Save | _Load | _End


class LeadingTrainer:
    """The trained model as the training loop sees it, in the first process."""

    def __init__(self, config: TrainConfig) -> None:
        self._trainer = EmbeddedTrainer(config)
        self._group = _open_group()
        self._is_between = True
        """Whether the others wait for the next operation."""

    def update(self, batch: TrainingBatch, step: int, version: int) -> UpdateReport:
        """Learn from a batch; see ``PolicyTrainer``."""
        return self._lead(_Update(batch, step, version), lambda: self._trainer.update(batch, step, version))

    def published_weights(self) -> PublishedWeights:
        """Return what engines get; see ``PolicyTrainer``."""
        found = self._trainer.published_weights()
        return PublishedWeights(self._read(found.tensors), found.adapter)

    def save(self, directory: Path) -> None:
        """Write weights and optimizer state."""
        self._lead(_Save(directory), lambda: self._trainer.save(directory))

    def load(self, directory: Path) -> None:
        """Read what ``save`` wrote; see ``PolicyTrainer``."""
        self._lead(_Load(directory), lambda: self._trainer.load(directory))

    def end(self) -> None:
        """Let the others end, unless an operation failed half-way: then torchrun ends them."""
        if self._is_between:
            self._is_between = False
            _announce(self._group, _End())

    def _lead(self, operation: _Operation, run: Callable[[], _Result]) -> _Result:
        self._is_between = False
        _announce(self._group, operation)
        result = run()
        self._is_between = True
        return result

    def _read(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        self._is_between = False
        _announce(self._group, _ReadWeights())
        yield from tensors
        self._is_between = True


def follow_leader(config: TrainConfig) -> None:
    """Repeat each operation of the first process, until that ends."""
    trainer = EmbeddedTrainer(config)
    group = _open_group()
    while not isinstance(operation := _announce(group, None), _End):
        match operation:
            case _Update(batch, step, version):
                trainer.update(batch, step, version)
            case _ReadWeights():
                for _ in trainer.published_weights().tensors:
                    pass
            case _Save(directory):
                trainer.save(directory)
            case _Load(directory):
                trainer.load(directory)


def _open_group() -> ProcessGroup:
    group = torch.distributed.new_group(backend="gloo", timeout=_MAX_WAIT)
    return cast("ProcessGroup", group)


def _announce(group: ProcessGroup, operation: _Operation | None) -> _Operation:
    """Return the operation of the first process, which alone names one."""
    operations: list[_Operation | None] = [operation]
    torch.distributed.broadcast_object_list(operations, src=0, group=group, device=torch.device("cpu"))
    return cast("_Operation", operations[0])
