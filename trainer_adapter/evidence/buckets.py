"""Weights on their way to an engine on the same GPU: veRL's buckets, without vLLM, and a checksum at both ends.

``python -m trainer_adapter.evidence.buckets HANDLE DEVICE`` is the receiver. It prints a line when it is ready, and
then the checksum of all tensors.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from verl.plugin.platform.platform_manager import set_platform

from agent_layer.errors import EngineError
from trainer_adapter.verl import CpuPlatform

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL carries no types.

_READY = "ready"
_BUCKET_MEGABYTES = {"cuda": 2048, "cpu": 4}
"""veRL's own size, and one that a tiny model fills."""
_CHUNK = 1 << 24
_PERIOD = 65_521


class SentWeights(NamedTuple):
    """What arrived, and how fast."""

    num_bytes: int
    seconds: float
    is_equal: bool
    """Whether each tensor arrived as it was sent."""


class WeightsChecksum:
    """A number for each named tensor that changes with each bit and with its place; computed on its device."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self._sums: dict[str, Tensor] = {}

    def watch(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yield tensors, and add each."""
        for name, tensor in weights:
            self._sums[name] = _sum_elements(tensor)
            self.num_bytes += tensor.nbytes
            yield name, tensor

    @property
    def value(self) -> str:
        """All of them, in the order of names."""
        return " ".join(f"{name}={int(found)}" for name, found in sorted(self._sums.items()))


def send_weights(weights: Iterable[tuple[str, Tensor]], device: str, directory: Path) -> SentWeights:
    """Send weights into another process, and compare what arrived.

    Args:
        weights: names and whole tensors.
        device: ``cuda``: through the GPU's memory; ``cpu``: through shared memory.
        directory: for the socket; its path is short.
    """
    handle = f"ipc://{directory}/weights.sock"
    command = [sys.executable, "-m", "trainer_adapter.evidence.buckets", handle, device]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        for line in receiver.stdout:
            if line.strip() == _READY:
                break
        else:
            raise EngineError("weights: expected a process that takes them, found that it ended; see its output")
        sent, began = WeightsChecksum(), time.perf_counter()
        sender = _load_transfer().BucketedWeightSender(handle, _BUCKET_MEGABYTES[device], use_shm=device == "cpu")
        asyncio.run(sender.async_send_weights(sent.watch(weights)))
        seconds = time.perf_counter() - began
        received = receiver.stdout.read().split("\n")[-2]
    return SentWeights(sent.num_bytes, seconds, received == sent.value)


def _sum_elements(tensor: Tensor) -> Tensor:
    words = tensor.detach().contiguous().view(-1).view(torch.uint8)
    words = words.view(torch.int32) if len(words) % 4 == 0 else words
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for start in range(0, len(words), _CHUNK):
        part = words[start : start + _CHUNK].long()
        places = torch.arange(start, start + len(part), device=words.device) % _PERIOD + 1
        total += (part * places).sum()
    return total


def _load_transfer() -> ModuleType:
    """Import veRL's module of senders and receivers alone; its package asks for an installed vLLM."""
    package = find_spec("verl")
    assert package is not None and package.origin is not None  # noqa: PT018  # both are for the type checker
    path = Path(package.origin).parent / "workers/rollout/vllm_rollout/bucketed_weight_transfer.py"
    spec = spec_from_file_location("bucketed_weight_transfer", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _receive(handle: str, name: str) -> None:
    if name == "cpu":  # the engines that enter_platform imports take seconds, and are not needed
        set_platform(CpuPlatform())
    received = WeightsChecksum()
    device = torch.device(name, 0) if name == "cuda" else torch.device(name)
    receiver = _load_transfer().BucketedWeightReceiver(handle, device, use_shm=name == "cpu")
    print(_READY, flush=True)  # noqa: T201  # the sender reads it

    def take(weights: Iterable[tuple[str, Tensor]], _: object) -> None:
        list(received.watch(weights))

    receiver.receive_weights(take)
    print(received.value)  # noqa: T201


if __name__ == "__main__":
    _receive(*sys.argv[1:])
