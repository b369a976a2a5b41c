"""Weights from veRL's training processes to its separate servers, through one file that both see.

veRL's own backends need GPUs or their networks; this one needs a common directory. The first process writes the whole
model, safetensors, under the number of its version; each server's process waits for the file and reads it.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from shutil import rmtree

from safetensors.torch import load_file, save_file
from torch import Tensor
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

from agent_layer.errors import UnreachableError
from agent_layer.infra import make_private, write_beside

# pyright: reportUnknownMemberType=false, reportUntypedClassDecorator=false, reportIncompatibleMethodOverride=false
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportAttributeAccessIssue=false
# veRL and safetensors carry few types.

_POLL_SECONDS = 0.01


@CheckpointEngineRegistry.register("agent_layer_files")
class FileTransfer(CheckpointEngine):
    """One end of the transfer; veRL makes one in each process.

    Args:
        bucket_size: veRL's; a file needs none.
        directory: that all processes see; it holds one version, during the transfer only.
        is_master: whether this is the training process that writes.
        wait_seconds: after which a server gives up.
    """

    def __init__(
        self, bucket_size: int, directory: str, *, is_master: bool = False, wait_seconds: float = 600.0
    ) -> None:
        del bucket_size
        self._directory, self._is_master, self._wait_seconds = Path(directory), is_master, wait_seconds

    def prepare(self) -> dict[str, object]:
        """Begin with an empty directory: a trainer that was killed may have left a file."""
        self._clear()
        return {}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, object]]
    ) -> tuple[dict[str, list[object]], dict[str, list[object]]]:
        """Return nothing to tell the processes: all of them know the directory."""
        del actor_wg_world_size, rollout_world_size, metadata
        return {}, {}

    def init_process_group(self, **options: object) -> None:
        """Connect nothing."""

    def finalize(self) -> None:
        """Delete the file: all servers have read it."""
        self._clear()

    async def send_weights(self, weights: Iterable[tuple[str, Tensor]], global_steps: int | None = None) -> None:
        """Write the weights. Every training process takes part: each holds a shard of each tensor."""
        whole: dict[str, Tensor] = {}
        for name, tensor in weights:
            if self._is_master:
                whole[name] = tensor.detach().to("cpu", copy=True).contiguous()
        if self._is_master:
            make_private(self._directory)
            path, pending = self._file(global_steps), self._directory / "pending"
            with write_beside(path, pending, private=False, sync=False):
                save_file(whole, pending)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, Tensor]]:
        """Yield the name and value of each tensor.

        Raises: UnreachableError: there is no file after the wait.
        """
        path, deadline = self._file(global_steps), time.monotonic() + self._wait_seconds
        while not path.exists():
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"weights {path}: expected the trainer to write them within {self._wait_seconds:g} s, found none;"
                    " does this machine see the directory?"
                )
            await asyncio.sleep(_POLL_SECONDS)
        for name, tensor in load_file(path).items():
            yield name, tensor

    def _file(self, global_steps: int | None) -> Path:
        return self._directory / f"{global_steps}.safetensors"

    def _clear(self) -> None:
        if self._is_master:
            rmtree(self._directory, ignore_errors=True)
