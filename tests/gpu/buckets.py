"""veRL's transfer of weights in buckets, without vLLM, and a hash of what arrived."""

from collections.abc import Iterable
from hashlib import blake2b
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import torch


def load_transfer() -> ModuleType:
    """Import veRL's module of senders and receivers alone; its package asks for an installed vLLM."""
    package = find_spec("verl")
    assert package
    assert package.origin
    path = Path(package.origin).parent / "workers/rollout/vllm_rollout/bucketed_weight_transfer.py"
    spec = spec_from_file_location("bucketed_weight_transfer", path)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class WeightsHash:
    """Adds tensors, and has their hash."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def add(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Add tensors by name."""
        for name, tensor in weights:
            content = tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8).numpy()
            self._found[name] = blake2b(content.tobytes(), digest_size=16).hexdigest()

    @property
    def value(self) -> str:
        """Hash of all."""
        return blake2b(repr(sorted(self._found.items())).encode(), digest_size=16).hexdigest()
