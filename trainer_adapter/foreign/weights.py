"""The weights of a trainer that is not ours, as policy versions that the engines of the run serve."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from agent_layer.infra import open_redis
from agent_layer.recorder import open_recorder
from agent_layer.settings import Settings
from trainer_adapter.verl import PublishedWeights, WeightPublisher

if TYPE_CHECKING:
    from torch import Tensor


class ServedWeights:
    """Publishes weights, and loads them into the engines, before rollouts of them begin.

    Args:
        model: directory of the first weights, with configuration and tokenizer.
        settings: locations of state, and the run.
    """

    def __init__(self, model: Path, settings: Settings) -> None:
        self._model = model
        self._publisher = WeightPublisher(settings, settings.run, open_redis(settings), open_recorder(settings))

    def serve(self, tensors: "Iterable[tuple[str, Tensor]]", training_step: int) -> int:
        """Publish whole tensors by name; return their version. A trainer may count its steps from 0 again.

        Raises: EngineError: no engine of the run serves them.
        """
        self._publisher.register_base(self._model)
        version = self._publisher.publish(PublishedWeights(tensors, None), self._model, training_step)
        self._publisher.serve(version, is_required=True)
        self._publisher.keep_newest(2)
        return version
