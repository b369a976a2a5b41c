"""The update of the embedded driver, computed by veRL's workers on Ray.

Rows are in TransferQueue; workers read and write their columns. One call of ``update_actor`` is one optimizer step over
all rows of a minibatch, so forks do not make further steps, as veRL's own padding to a multiple of its minibatch would.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from peft import LoraConfig as PeftConfig
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.single_controller.ray import RayWorkerGroup
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.workers.utils.padding import response_from_nested

from trainer_adapter.cluster.bridge import UpdateRequest
from trainer_adapter.cluster.rows import clear_rows, read_jagged_columns, split_rows, write_columns
from trainer_adapter.config import TrainConfig
from trainer_adapter.verl import (
    LossPlan,
    PolicyUpdate,
    PublishedWeights,
    UpdateReport,
    check_num_processes,
    check_same,
    make_loss,
)

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false
# veRL, tensordict and TransferQueue carry no types; a worker group has the methods of its workers.

_TOKEN_COLUMNS = ("old_log_probs", "advantages", "rollout_is_weights", "ref_log_prob")
_ROW_COLUMNS = ("row_weights", "rollout_mean")


class Models(Protocol):
    """What veRL's trainer has of its models."""

    @property
    def actor(self) -> RayWorkerGroup:
        """Workers of the trained model."""
        ...

    @property
    def reference(self) -> RayWorkerGroup | None:
        """Workers of the first weights; None without ``algorithm.kl``."""
        ...

    @property
    def num_ranks(self) -> int:
        """Processes of the trained model."""
        ...

    @property
    def end_token(self) -> int:
        """Token for rows without meaning."""
        ...


class ClusterUpdate(PolicyUpdate):
    """Updates of a run on Ray. All calls come from veRL's thread."""

    def __init__(self, config: TrainConfig, models: Models) -> None:
        super().__init__(config)
        self._models = models
        self._keys: list[str] = []
        self._tags: list[dict[str, object]] = []

    def run(self, request: UpdateRequest, rows: KVBatchMeta) -> UpdateReport:
        """Learn from a batch whose rows are stored."""
        self._keys, self._tags = rows.keys, rows.tags
        return self.update(request.batch, request.step, request.version)

    def save(self, directory: Path) -> None:  # noqa: D102  # see the base
        self._models.actor.save_checkpoint(str(directory))
        if adapter := self._find_adapter():
            adapter.save_pretrained(str(directory))

    def load(self, directory: Path) -> None:  # noqa: D102
        check_same(directory, self._find_adapter())
        check_num_processes(directory, self._models.num_ranks)
        self._models.actor.load_checkpoint(str(directory))

    def published_weights(self) -> PublishedWeights:
        """Return nothing: veRL sends weights from its workers to its servers."""
        return PublishedWeights([], None)

    def _infer(self, data: TensorDict, *, reference: bool = False) -> dict[str, Tensor]:
        without_adapter = reference and self._config.lora is not None  # the reference is the model that it adapts
        rows = self._select(data, calculate_entropy=True, compute_loss=False, no_lora_adapter=without_adapter)
        if reference and not without_adapter:
            self._models.reference.compute_ref_log_prob(rows)  # pyright: ignore[reportOptionalMemberAccess]
        else:
            self._models.actor.compute_log_prob(rows)
        keys, padding = rows.keys[: len(data)], rows.keys[len(data) :]
        found = read_jagged_columns(keys, ["log_probs", "entropy", "response_mask"])
        mask, width = _jagged(found["response_mask"]), data["response_mask"].shape[1]
        clear_rows(padding)
        names = ("log_probs", "entropy")
        return {name: _pad(response_from_nested(_jagged(found[name]), mask), width) for name in names}

    def _make_step(self, minibatch: TensorDict, **fields: object) -> dict[str, float]:
        options: dict[str, object] = {
            "epochs": 1,
            "seed": 0,
            "dataloader_kwargs": {"shuffle": False},
            "distillation_use_topk": False,
            "distillation_only": False,
        }
        rows = self._select(minibatch, **options, **fields)
        num_padding = len(rows.keys) - len(minibatch)
        lengths = [int(self._tags[row]["response_len"]) for row in minibatch["row"]]  # pyright: ignore[reportArgumentType]
        columns: dict[str, list[Tensor]] = {}
        for name in ("response_mask", *_TOKEN_COLUMNS):
            if name in minibatch:
                values = [row[:size] for row, size in zip(minibatch[name], lengths, strict=True)]
                columns[name] = values + [values[0].new_zeros(1)] * num_padding
        for name in _ROW_COLUMNS:
            if name in minibatch:
                columns[name] = [*minibatch[name].float().unbind(0), *[torch.zeros(())] * num_padding]
        columns |= {"loss_mask": columns["response_mask"], "returns": columns["advantages"]}
        write_columns(rows.keys, columns)
        rows.extra_info["mini_batch_size"] = len(rows.keys)  # pyright: ignore[reportOptionalSubscript]  # _select gave it
        output = self._models.actor.update_actor(rows)
        clear_rows(rows.keys[len(minibatch) :])
        return {name: float(np.mean(np.asarray(value, dtype=np.float64))) for name, value in output["metrics"].items()}

    def _find_adapter(self) -> PeftConfig | None:
        return self._models.actor.find_adapter()[0] if self._config.lora else None

    def _set_loss(self, plan: LossPlan) -> None:
        self._models.actor.set_loss_fn(make_loss(plan))

    def _set_learning_rate(self, rate: float) -> None:
        self._models.actor.set_learning_rate(rate)

    def _select(self, data: TensorDict, **fields: object) -> KVBatchMeta:
        """Return rows with options for veRL's workers, padded to a multiple of their number."""
        chosen: Sequence[int] = data["row"].tolist()
        rows = KVBatchMeta(
            partition_id="train",
            keys=[self._keys[row] for row in chosen],
            tags=[self._tags[row] for row in chosen],
            extra_info={
                "use_dynamic_bsz": True,
                "max_token_len_per_gpu": self.count_microbatch_tokens(data),
                **fields,
            },
        )
        num_shares = self._models.num_ranks // self._config.optimizer.sequence_parallel
        return upsample_batch_to_divisible_size(rows, num_shares, self._models.end_token)


def _jagged(values: Tensor) -> Tensor:
    return values if values.is_nested else torch.nested.as_nested_tensor(split_rows(values), layout=torch.jagged)


def _pad(values: Tensor, width: int) -> Tensor:
    """Return [num_rows, width], zeros behind each row."""
    return values.to_padded_tensor(0.0, (len(values), width)).float()
