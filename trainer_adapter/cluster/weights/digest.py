"""A hash of a model's weights, equal where they were sent and where they arrived."""

from collections.abc import Iterable
from hashlib import blake2b

import torch
from torch import Tensor

_BYTES = 16


def hash_weights(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Return a hash of the tensors with their names, types and shapes; their order does not count."""
    return blake2b(b"".join(sorted(_hash(name, tensor) for name, tensor in weights)), digest_size=_BYTES).hexdigest()


def _hash(name: str, tensor: Tensor) -> bytes:
    found = blake2b(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode(), digest_size=_BYTES)
    found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.digest()
