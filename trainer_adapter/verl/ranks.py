"""One model in several processes: the first announces each operation before it begins it, the others repeat it.

Each process has a part of the model, so each operation needs all of them. Checkpoints have a part of each process: all
need the same file system.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Generic, NamedTuple, TypeAlias, TypeVar, TypeVarTuple, cast

import torch.distributed
from torch import Tensor
from torch.distributed import ProcessGroup

from trainer_adapter.config import TrainConfig
from trainer_adapter.data import TrainingBatch
from trainer_adapter.verl.supervised import SupervisedTrainer
from trainer_adapter.verl.tensors import TokenRow
from trainer_adapter.verl.trainer import EmbeddedTrainer, UpdateReport
from trainer_adapter.verl.weights import PublishedWeights

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# Much of torch.distributed carries no types.

_Trainer = TypeVar("_Trainer", bound=EmbeddedTrainer)
_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")
_MAX_WAIT = timedelta(days=30)
"""Wait for the next operation: rollouts, evaluations and pauses may take their time. A process that dies ends it at
once."""


class _Call(NamedTuple):
    method: str
    """Name of a method of the trainer."""
    arguments: tuple[object, ...]


class _ReadWeights(NamedTuple):
    pass


class _End(NamedTuple):
    pass


_Operation: TypeAlias = _Call | _ReadWeights | _End


class _Leader(Generic[_Trainer]):
    """Leads a trainer in the first process, whatever it trains on."""

    def __init__(self, trainer: _Trainer) -> None:
        self._trainer = trainer
        self._group = _open_group()
        self._is_between = True
        """Whether the others wait for the next operation."""

    def save(self, directory: Path) -> None:
        """Write weights and optimizer state."""
        self._lead(self._trainer.save, directory)

    def load(self, directory: Path) -> None:
        """Read what ``save`` wrote; see ``PolicyTrainer``."""
        self._lead(self._trainer.load, directory)

    def end(self) -> None:
        """Let the others end, unless an operation failed half-way: then torchrun ends them."""
        if self._is_between:
            self._is_between = False
            _announce(self._group, _End())

    def _lead(self, method: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        self._is_between = False
        _announce(self._group, _Call(method.__name__, arguments))
        result = method(*arguments)
        self._is_between = True
        return result


class LeadingTrainer(_Leader[EmbeddedTrainer]):
    """The trained model as the training loop sees it, in the first process."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(EmbeddedTrainer(config))

    def update(self, batch: TrainingBatch, step: int, version: int) -> UpdateReport:
        """Learn from a batch; see ``PolicyTrainer``."""
        return self._lead(self._trainer.update, batch, step, version)

    def published_weights(self) -> PublishedWeights:
        """Return what engines get; see ``PolicyTrainer``."""
        found = self._trainer.published_weights()
        return PublishedWeights(self._read(found.tensors), found.adapter)

    def _read(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        self._is_between = False
        _announce(self._group, _ReadWeights())
        yield from tensors
        self._is_between = True


class LeadingSupervisedTrainer(_Leader[SupervisedTrainer]):
    """The trained model of a warm start, in the first process; see ``SupervisedTrainer``."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(SupervisedTrainer(config))

    def imitate(self, rows: Sequence[TokenRow], rate: float) -> dict[str, float]:  # noqa: D102
        return self._lead(self._trainer.imitate, rows, rate)

    def prefer(  # noqa: D102
        self, rows: Sequence[TokenRow], reference: Tensor, beta: float, rate: float
    ) -> dict[str, float]:
        return self._lead(self._trainer.prefer, rows, reference, beta, rate)

    def sum_logprobs(self, rows: Sequence[TokenRow]) -> Tensor:  # noqa: D102
        return self._lead(self._trainer.sum_logprobs, rows)


def follow_leader(trainer: EmbeddedTrainer) -> None:
    """Repeat each operation of the first process, until that ends."""
    group = _open_group()
    while not isinstance(operation := _announce(group, None), _End):
        match operation:
            case _Call(method, arguments):
                getattr(trainer, method)(*arguments)
            case _ReadWeights():
                for _ in trainer.published_weights().tensors:
                    pass


def _open_group() -> ProcessGroup:
    group = torch.distributed.new_group(backend="gloo", timeout=_MAX_WAIT)
    return cast("ProcessGroup", group)


def _announce(group: ProcessGroup, operation: _Operation | None) -> _Operation:
    """Return the operation of the first process, which alone names one."""
    operations: list[_Operation | None] = [operation]
    torch.distributed.broadcast_object_list(operations, src=0, group=group, device=torch.device("cpu"))
    return cast("_Operation", operations[0])
