"""A checkpoint as a directory in Hugging Face's form: the model with its tokenizer, or its adapter alone.

veRL writes one shard per process. Here the shards of each tensor are joined exactly; veRL's own merger rounds them to
bfloat16. One file of the result is in memory at a time.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from peft import LoraConfig
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]  # partly untyped
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard

from agent_layer.errors import BadInputError, CorruptRecordError, NotFoundError
from agent_layer.infra import make_beside, sync_path
from trainer_adapter.lineage import read_parent, write_parent
from trainer_adapter.verl.adapters import add_adapter, file_name, find_parts, is_factor, read_adapter

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# torch.distributed.tensor carries no types.

Precision: TypeAlias = Literal["float32", "bfloat16"]

_PART_BYTES = 5 << 30
_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class _Weight(NamedTuple):
    """One tensor of the model, as its shards."""

    shards: list[Tensor]
    dim: int | None
    """Along which the shards are joined; None: each is the whole."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole."""
        sizes = list(self.shards[0].shape)
        if self.dim is not None:
            sizes[self.dim] = sum(shard.shape[self.dim] for shard in self.shards)
        return tuple(sizes)

    def join(self) -> Tensor:
        """Return the whole."""
        return self.shards[0] if self.dim is None else torch.cat(self.shards, self.dim)


class _AdaptedWeight(NamedTuple):
    """One tensor of the model with its adapter added."""

    base: _Weight
    a: _Weight
    b: _Weight
    config: LoraConfig

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole."""
        return self.base.shape

    def join(self) -> Tensor:
        """Return the whole."""
        return add_adapter(self.base.join(), self.a.join(), self.b.join(), self.config)


def check_num_processes(checkpoint: Path, num_processes: int) -> None:
    """Raise BadInputError for a checkpoint of another number of processes, none of whose shards would fit."""
    if (found := _read_num_processes(checkpoint)) != num_processes:
        raise BadInputError(
            f"checkpoint {checkpoint}: expected as many shards as processes that train now ({num_processes}), found"
            f" {found}; train with {found} processes, or start another run from what 'agent-layer checkpoint export'"
            " makes of it"
        )


def export_checkpoint(
    checkpoint: Path,
    directory: Path,
    *,
    precision: Precision = "float32",
    adapter_only: bool = False,
    part_bytes: int = _PART_BYTES,
    progress: Callable[[int, int], object] = lambda _, __: None,
) -> None:
    """Write the weights of a checkpoint as a model directory, whole or not at all. An adapter is added to the weights.

    Args:
        checkpoint: directory that ``EmbeddedTrainer.save`` wrote, by any number of processes.
        directory: new or empty.
        precision: of the written weights; the checkpoint's are float32.
        adapter_only: write the adapter, in PEFT's form, in place of the model.
        part_bytes: largest file of weights; a larger tensor has a file of its own.
        progress: called with the number of tensors written, and of all.

    Raises:
        BadInputError: the directory is not empty, or there is no adapter to write.
        CorruptRecordError: a shard is missing, or shards do not fit together.
        NotFoundError: the trainer deleted the checkpoint meanwhile.
    """
    check_new(directory)
    try:
        with make_beside(directory) as pending:
            _export(checkpoint, pending, precision, part_bytes, progress, adapter_only=adapter_only)
            pending.replace(directory)
            sync_path(directory.parent)
    except (FileNotFoundError, CorruptRecordError) as error:
        if checkpoint.is_dir():
            raise
        raise NotFoundError(
            f"checkpoint {checkpoint}: expected it to stay until it is exported, but it was deleted meanwhile, as later"
            " ones are kept; export a later one, or let the run keep more ('keep: {num_checkpoints: …}')"
        ) from error


def _export(
    checkpoint: Path,
    pending: Path,
    precision: Precision,
    part_bytes: int,
    progress: Callable[[int, int], object],
    *,
    adapter_only: bool,
) -> None:
    adapter = read_adapter(checkpoint)
    stored = _read_weights(checkpoint)
    if adapter_only:
        if adapter is None:
            raise BadInputError(
                f"checkpoint {checkpoint}: expected an adapter, found none: all weights were trained; export the model"
            )
        adapter.save_pretrained(str(pending))
        factors = {file_name(name): weight for name, weight in stored.items() if is_factor(name)}
        _write_weights(pending, factors, _TYPES[precision], part_bytes, progress, stem="adapter_model")
    else:
        shutil.copytree(checkpoint / "huggingface", pending, dirs_exist_ok=True)
        described = json.loads((pending / "config.json").read_bytes())
        described.pop("attn_implementation", None)  # the trainer's own, which no other program has
        (pending / "config.json").write_text(json.dumps(described | {"dtype": precision}, indent=2))
        weights = _add_adapter(stored, adapter) if adapter else stored
        _write_weights(pending, weights, _TYPES[precision], part_bytes, progress)
    if (origin := read_parent(checkpoint)) is not None:
        write_parent(pending, origin)
    for path in (*pending.iterdir(), pending):
        sync_path(path)


def check_new(directory: Path) -> None:
    """Raise BadInputError: something is at this place that an export would replace."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise BadInputError(
            f"export to {directory}: expected a new or empty directory, found files; choose another directory"
        )


def _read_weights(checkpoint: Path) -> dict[str, _Weight]:
    """Map the tensors of all shards into memory, without those that are tied to an earlier one."""
    world_size = _read_num_processes(checkpoint)
    first = _load_shard(checkpoint, world_size, 0)
    meshes = [tensor.device_mesh.mesh for tensor in first.values() if isinstance(tensor, DTensor)]
    # processes whose shards make one copy of the model: with replicas, those of the first
    ranks: list[int] = meshes[0].reshape(-1, meshes[0].shape[-1])[0].tolist() if meshes else [0]
    shards = [first, *(_load_shard(checkpoint, world_size, rank) for rank in ranks[1:])]
    found: dict[str, _Weight] = {}
    seen: set[int] = set()
    for name, tensor in first.items():
        dim = _sharded_dim(name, tensor)
        weight = _Weight([_local(shard[name]) for shard in (shards if dim is not None else shards[:1])], dim)
        storage = weight.shards[0].untyped_storage().data_ptr()
        if storage not in seen:
            found[name] = weight
        seen.add(storage)
    return found


def _add_adapter(stored: Mapping[str, _Weight], config: LoraConfig) -> dict[str, _Weight | _AdaptedWeight]:
    """Return the weights of the model by their names in it."""
    return {
        name: _AdaptedWeight(stored[base], stored[a], stored[b], config) if a and b else stored[base]
        for name, (base, a, b) in find_parts(stored).items()
    }


def _read_num_processes(checkpoint: Path) -> int:
    return json.loads((checkpoint / "fsdp_config.json").read_bytes())["world_size"]


def _load_shard(checkpoint: Path, world_size: int, rank: int) -> dict[str, Tensor]:
    path = checkpoint / f"model_world_size_{world_size}_rank_{rank}.pt"
    if not path.is_file():
        raise CorruptRecordError(
            f"checkpoint {checkpoint}: expected the shards of {world_size} processes, found no {path.name}; copy the"
            " shards of all machines into this directory"
        )
    return torch.load(path, map_location="cpu", mmap=True, weights_only=True)


def _sharded_dim(name: str, tensor: Tensor) -> int | None:  # kept: a match that returns from its cases
    match tensor.placements if isinstance(tensor, DTensor) else ():
        case (*replicas, Shard(dim=dim)) if all(isinstance(one, Replicate) for one in replicas):
            return dim
        case placements if all(isinstance(one, Replicate) for one in placements):
            return None
        case placements:
            raise CorruptRecordError(
                f"tensor {name}: expected shards along one dimension, found the placements {placements}; export it"
                " with the tool of the trainer that wrote it"
            )


def _local(tensor: Tensor) -> Tensor:
    with torch.no_grad():  # with gradients, a DTensor asks its process group, which has ended
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _write_weights(
    directory: Path,
    weights: Mapping[str, _Weight | _AdaptedWeight],
    kind: torch.dtype,
    part_bytes: int,
    progress: Callable[[int, int], object],
    *,
    stem: str = "model",
) -> None:
    sketch = {name: torch.empty(weight.shape, dtype=kind, device="meta") for name, weight in weights.items()}
    pattern = f"{stem}{{suffix}}.safetensors"
    plan = split_torch_state_dict_into_shards(sketch, filename_pattern=pattern, max_shard_size=part_bytes)
    num_done = 0
    for file, names in plan.filename_to_tensors.items():
        part: dict[str, Tensor] = {}
        for name in names:
            part[name] = weights[name].join().to(kind).contiguous()
            num_done += 1
            progress(num_done, len(weights))
        save_file(part, directory / file, metadata={"format": "pt"})
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        (directory / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=2))
