"""The training loop's side of a run on Ray: versions whose weights veRL itself sends, and a model that it holds."""

from collections.abc import Callable
from pathlib import Path

from redis import Redis

from agent_layer.recorder import Recorder
from agent_layer.settings import Settings
from trainer_adapter.cluster.bridge import Bridge
from trainer_adapter.cluster.update import ClusterUpdate
from trainer_adapter.cluster.weights.fleet import EngineFleet, name_location
from trainer_adapter.data import TrainingBatch
from trainer_adapter.verl import PublishedWeights, UpdateReport, WeightPublisher


class ClusterPublisher(WeightPublisher):
    """Registers versions; their weights go from veRL's workers to its servers.

    Args:
        hash_weights: returns the hash of the trained weights, in veRL's thread; None: not known.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # its parts
        self,
        settings: Settings,
        run: str,
        redis: Redis,
        recorder: Recorder,
        bridge: Bridge,
        fleet: EngineFleet,
        hash_weights: Callable[[], str | None],
    ) -> None:
        super().__init__(settings, run, redis, recorder)
        self._bridge, self._fleet, self._name, self._hash_weights = bridge, fleet, run, hash_weights

    def publish(self, weights: PublishedWeights, base: Path, training_step: int, precision: str = "float32") -> int:
        """Register the next version; see the base."""
        del weights, precision
        number = self.newest() + 1
        weights_hash = self._bridge.act(self._hash_weights)
        self._register(number, name_location(self._name, number, base), training_step, weights_hash)
        return number

    def serve(self, number: int, *, is_required: bool = False, stop: Callable[[], bool] = lambda: False) -> None:
        """Let all servers serve a version; see the base. There is no older one to go back to."""
        del is_required, stop
        self._bridge.act(lambda: self._fleet.serve(number))

    def keep_newest(self, num_kept: int) -> None:
        """Delete nothing: weights are in memory."""


class RemoteUpdate:
    """The trained model as the loop's thread sees it: veRL's thread does the work."""

    def __init__(self, bridge: Bridge, update: ClusterUpdate) -> None:
        self._bridge, self._remote = bridge, update

    def update(self, batch: TrainingBatch, step: int, version: int) -> UpdateReport:  # noqa: D102  # see the base
        return self._bridge.update(batch, step, version)

    def save(self, directory: Path) -> None:  # noqa: D102
        self._bridge.act(lambda: self._remote.save(directory))

    def load(self, directory: Path) -> None:  # noqa: D102
        self._bridge.act(lambda: self._remote.load(directory))

    def published_weights(self) -> PublishedWeights:  # noqa: D102
        return self._remote.published_weights()
