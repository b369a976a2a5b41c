"""New weights for the engines: a directory per version, its registration, the switch.

Promise 10: a version is registered before any engine serves it, so that every recorded version is known.
"""

import logging
import shutil
import time
from collections.abc import Callable, Iterable
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import torch
from peft import LoraConfig
from redis import Redis
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]  # partly untyped
from torch import Tensor

from agent_layer.engines import Engine, EngineRegistry, get_policy, newest_policy, register_policy, restore_policies
from agent_layer.errors import AgentLayerError, EngineError, NotFoundError, UnreachableError
from agent_layer.infra import Keys, make_private, sync_path
from agent_layer.recorder import Recorder
from agent_layer.schema import CheckpointRef, PolicyVersion
from agent_layer.settings import Settings
from trainer_adapter.lineage import read_parent, write_parent

Precision: TypeAlias = Literal["float32", "bfloat16"]

# pyright: reportUnknownMemberType=false
# Some of PEFT's methods carry no types.

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
_HEALTH_SECONDS = 2.0
_MAX_PASSES = 3
"""Times that engines which moved during a switch are looked at."""
_WEIGHTS, _ADAPTER = "model.safetensors", "adapter_model.safetensors"
_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth"}


class PublishedWeights(NamedTuple):
    """What an engine loads."""

    tensors: Iterable[tuple[str, Tensor]]
    """Whole tensors, by the names of Hugging Face, or of PEFT for an adapter."""
    adapter: LoraConfig | None
    """Configuration of the adapter that the tensors make; None: they are the model's."""


class WeightPublisher:
    """Publishes the weights of a run as policy versions, and loads them into its engines."""

    def __init__(self, settings: Settings, run: str, redis: Redis, recorder: Recorder) -> None:
        self._settings = settings
        self._run = run
        self._redis = redis
        self._keys = Keys(settings.namespace)
        self._recorder = recorder
        self._board = EngineRegistry(redis, self._keys, settings.gateway_seconds)
        self._own: dict[int, PolicyVersion] = {}
        """Versions that this process has registered or read, by number: Redis may forget them."""

    @property
    def directory(self) -> Path:
        """Directory of all versions of the run."""
        return self._settings.dir.absolute() / "weights" / self._run

    def register_base(self, model: Path) -> None:
        """Register the first weights of the run as version 0, unless they are registered."""
        self._register(0, model.absolute(), None, None, read_parent(model))

    def newest(self) -> int:
        """Return the highest registered number; only after ``register_base``."""
        newest = newest_policy(self._redis, self._keys, self._run)
        if self._own and (newest is None or newest.number < max(self._own)):
            restore_policies(self._redis, self._keys, self._own.values())
        return max([newest.number if newest else 0, *self._own])

    def find(self, number: int) -> PolicyVersion:
        """Return a registered version.

        Raises: NotFoundError: it is not registered.
        """
        if policy := get_policy(self._redis, self._keys, self._run, number) or self._own.get(number):
            self._own[number] = policy
            return policy
        raise NotFoundError(
            f"run {self._run}: expected policy version {number} to be registered, found none; start the trainer again,"
            " it publishes its newest checkpoint"
        )

    def publish(
        self, weights: PublishedWeights, base: Path, training_step: int, precision: Precision = "float32"
    ) -> int:
        """Write the weights and register them as the next version; no engine serves them yet.

        Args:
            weights: of the model, or an adapter of ``base``.
            base: model directory with configuration and tokenizer.
            training_step: steps that led to these weights.
            precision: of the written weights.

        Returns:
            the version's number.
        """
        number = self.newest() + 1
        directory = self.directory / f"{number:06d}"
        origin = CheckpointRef(run=self._run, step=training_step)
        weights_hash = write_weights(directory, weights, base, precision, origin)
        self._register(number, directory, training_step, weights_hash)
        return number

    def serve(self, number: int, *, is_required: bool = False, stop: Callable[[], bool] = lambda: False) -> None:
        """Switch every engine of the run that does not serve this version, such as one that was restarted.

        One whose weights are its own word is switched too: vLLM names those that it started with, whatever an earlier
        run has loaded since.

        One of several may fail: it gets no calls until a later version is loaded into it.

        Args:
            number: the version.
            is_required: whether the run must have an engine; one that is still starting is waited for.
            stop: ends the wait; a restarted trainer serves the version then.

        Raises:
            EngineError: there is none within ``engine_seconds`` though it is required, or none could be switched.
            UnreachableError: none answers.
        """
        deadline = time.monotonic() + self._settings.engine_seconds
        while not (own := self._engines()) and is_required and not stop():
            if time.monotonic() > deadline:
                others = ", ".join(f"{engine.url} of run {engine.run!r}" for engine in self._board.engines()) or "none"
                raise EngineError(
                    f"run {self._run}: expected an engine that serves it within {self._settings.engine_seconds:g} s,"
                    f" found {others}; start engine and gateway with AGENT_LAYER_RUN={self._run}"
                )
            time.sleep(_POLL_SECONDS)
        behind, errors = [one for one in own if _is_behind(one, number)], list[AgentLayerError]()
        for _ in range(_MAX_PASSES):  # an engine that starts again meanwhile has its first weights
            tried = {engine.url: self._try_switch(engine, number) for engine in behind}
            errors = [error for error in tried.values() if error]
            own = self._engines()
            behind = [one for one in own if _is_behind(one, number) and self._is_back(one, tried.get(one.url))]
            if not behind:
                break
        if errors and len(errors) == len(own):
            raise errors[0]

    def keep_newest(self, num_kept: int) -> None:
        """Delete the weights of all but the newest versions; they stay registered."""
        for directory in sorted(self.directory.glob("[0-9]*[0-9]"))[:-num_kept]:
            shutil.rmtree(directory)

    def _engines(self) -> list[Engine]:
        return [engine for engine in self._board.engines() if engine.run == self._run and not engine.is_pushed]

    def _is_back(self, engine: Engine, error: AgentLayerError | None) -> bool:
        """Whether an engine was registered again during a switch, or answers again after it did not."""
        if engine.state == "serving":
            return True
        return isinstance(error, UnreachableError) and self._board.control(engine.url, _HEALTH_SECONDS).is_healthy()

    def _try_switch(self, engine: Engine, number: int) -> AgentLayerError | None:
        """Switch one engine; return the error, unless the engine has left."""
        try:
            self._switch(engine, number)
        except (EngineError, UnreachableError) as error:
            log.warning("%s", error)
            return error if self._board.read(engine.url) else None
        return None

    def _switch(self, engine: Engine, number: int) -> None:
        policy = self.find(number)
        if not Path(policy.location).is_dir():
            raise EngineError(
                f"engine {engine.url}: expected weights of version {number} of run {self._run} to give it, found none;"
                " start the trainer again, it publishes its newest checkpoint"
            )
        location, control = Path(policy.location), self._board.control(engine.url)
        seconds = self._settings.drain_seconds
        self._board.switch(engine.url, number, policy.location, lambda: control.load(location), seconds)

    def _register(
        self,
        number: int,
        location: Path | str,
        training_step: int | None,
        weights_hash: str | None,
        parent: CheckpointRef | None = None,
    ) -> None:
        policy = PolicyVersion(
            run=self._run,
            number=number,
            location=str(location),
            created_at=time.time(),
            weights_hash=weights_hash,
            training_step=training_step,
            parent=parent,
        )
        register_policy(self._redis, self._keys, policy, self._recorder.append)
        self.find(number)  # the first registration of a number stands


def _is_behind(engine: Engine, number: int) -> bool:
    return engine.is_assumed or (engine.version, engine.state) != (number, "serving")


def write_weights(
    directory: Path, weights: PublishedWeights, base: Path, precision: Precision, origin: CheckpointRef
) -> str:
    """Write a loadable directory of a model or an adapter, whole or not at all; return the hash of its weights file.

    Args:
        directory: takes the place of one of the same name.
        weights: of a model, or an adapter of ``base``.
        base: model directory with configuration and tokenizer.
        precision: of the written weights.
        origin: what stands behind the weights.
    """
    pending = directory.with_suffix(".pending")
    shutil.rmtree(pending, ignore_errors=True)
    make_private(pending.parent)
    pending.mkdir(mode=0o700)
    for file in base.iterdir():
        if file.is_file() and file.suffix not in _WEIGHT_SUFFIXES and not file.name.endswith(".index.json"):
            shutil.copy2(file, pending)
    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]
    whole = {name: tensor.detach().to("cpu", kind, copy=True).contiguous() for name, tensor in weights.tensors}
    write_parent(pending, origin)
    path = pending / (_ADAPTER if weights.adapter else _WEIGHTS)
    save_file(whole, path, metadata={"format": "pt"})
    if weights.adapter:
        weights.adapter.save_pretrained(str(pending))
    sync_path(path)
    with path.open("rb") as file:
        weights_hash = file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
    shutil.rmtree(directory, ignore_errors=True)  # left by a trainer that died before it registered the number
    pending.replace(directory)
    return weights_hash
