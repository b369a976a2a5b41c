"""This file holds how new weights reach the engines: a directory per version, its registration, the switch.

Source of the order (register, then switch) is promise 10: no token may carry a version that is not known.
"""

import os
import shutil
import time
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import msgspec
from redis import Redis
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]  # partly untyped
from torch import Tensor

from agent_layer.local.control import EngineControl
from agent_layer.recorder.log import Recorder
from agent_layer.schema.policy import PolicyVersion
from agent_layer.settings import Settings
from agent_layer.store.engines import EngineBoard
from agent_layer.store.keys import Keys
from agent_layer.store.policies import newest_policy, register_policy

__all__ = ["WeightPublisher"]

_WEIGHTS = "model.safetensors"


class WeightPublisher:
    """Gives each update of a run its policy version, and its engines the new weights."""

    def __init__(self, settings: Settings, run: str, redis: Redis, recorder: Recorder) -> None:
        self._settings = settings
        self._run = run
        self._redis = redis
        self._keys = Keys(settings.namespace)
        self._recorder = recorder
        self._board = EngineBoard(redis, self._keys, settings.gateway_seconds)

    @property
    def directory(self) -> Path:
        """Where all versions of the run lie."""
        return self._settings.dir.absolute() / "weights" / self._run

    def register_base(self, model: Path) -> PolicyVersion:
        """Register the weights that the run starts from as version 0, unless that was done."""
        return self._register(0, model, training_step=None, weights_hash=None)

    def newest(self) -> PolicyVersion | None:
        """Version with the highest number; None before the first."""
        return newest_policy(self._redis, self._keys, self._run)

    def publish(self, tensors: Iterable[tuple[str, Tensor]], base: Path, training_step: int) -> PolicyVersion:
        """Write the weights, register them as the next version, and switch every engine of the run to it.

        Args:
            tensors: full parameters by the names of Hugging Face; float32 copies are written.
            base: model directory whose configuration and tokenizer go with them.
            training_step: updates that led to these weights.

        Raises: EngineError, UnreachableError: an engine could not be switched; the version stays registered.
        """
        newest = self.newest()
        number = newest.number + 1 if newest else 0
        directory = self.directory / f"{number:06d}"
        weights_hash = _write_model(directory, tensors, base)
        version = self._register(number, directory, training_step, weights_hash)
        for engine in self._board.engines():
            if engine.run == self._run:
                control = EngineControl(engine.url)
                self._board.switch(
                    engine.url,
                    number,
                    str(directory),
                    lambda control=control: control.load(directory),
                    self._settings.drain_seconds,
                )
        return version

    def keep_newest(self, num_kept: int) -> None:
        """Delete the weights of all but the newest versions; they stay registered."""
        for directory in sorted(self.directory.glob("[0-9]*[0-9]"))[:-num_kept]:
            shutil.rmtree(directory)

    def _register(
        self, number: int, location: Path, training_step: int | None, weights_hash: str | None
    ) -> PolicyVersion:
        version = PolicyVersion(
            run=self._run,
            number=number,
            location=str(location),
            created_at=time.time(),
            weights_hash=weights_hash,
            training_step=training_step,
        )
        if register_policy(self._redis, self._keys, version):
            self._recorder.append(version)
        return version


def _write_model(directory: Path, tensors: Iterable[tuple[str, Tensor]], base: Path) -> str:
    """Write a loadable model directory, whole or not at all; give the hash of its weights."""
    pending = directory.with_suffix(".new")
    shutil.rmtree(pending, ignore_errors=True)
    pending.mkdir(parents=True)
    for file in base.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copy2(file, pending)
    whole = {name: tensor.detach().float().cpu().contiguous().clone() for name, tensor in tensors}
    save_file(whole, pending / _WEIGHTS, metadata={"format": "pt"})
    with (pending / _WEIGHTS).open("rb") as file:
        os.fsync(file.fileno())
    weights_hash = blake2b(msgspec.json.encode(sorted(whole)), digest_size=16)
    weights_hash.update((pending / _WEIGHTS).read_bytes())
    pending.replace(directory)
    return weights_hash.hexdigest()
