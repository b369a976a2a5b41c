"""Updates of the policy, and the trainer inside this process: veRL's TrainingWorker with FSDP2.

One update: log-probabilities under the present weights, correction for the sampling weights, then minibatches of the
policy loss, all computed by veRL. Minibatches are made of whole rollouts. Order and rates follow from the seed and the
step alone, so that a run that was stopped continues identically.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Protocol, cast

import msgspec
import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor, nn
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.utils.metric import Metric
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding

from trainer_adapter.algorithms import resolve_algorithm
from trainer_adapter.config import TrainConfig
from trainer_adapter.data import TokenColumns, TrainingBatch, check_own_parts
from trainer_adapter.losses import check_named_loss
from trainer_adapter.model_sizes import check_sequence_parallel
from trainer_adapter.verl.adapters import (
    check_same,
    check_targets,
    file_name,
    find_adapter,
    is_factor,
    merged_weights,
    whole_tensor,
)
from trainer_adapter.verl.correction import correct_rollouts
from trainer_adapter.verl.export import check_num_processes
from trainer_adapter.verl.losses import RATIO_GAP, LossPlan, make_loss, rollout_means, weigh_rows
from trainer_adapter.verl.options import verl_arguments
from trainer_adapter.verl.platform import enter_platform
from trainer_adapter.verl.rank_shares import join_rows, share_rows
from trainer_adapter.verl.rollout_rows import RolloutRows
from trainer_adapter.verl.tensors import TEACHER, LogprobGap, add_teacher, measure_logprob_gap, pack_batch, read_columns
from trainer_adapter.verl.weights import PublishedWeights
from trainer_adapter.verl_keys import ENGINE, MODEL, OPTIMIZER, PACKED_ATTENTION

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL and tensordict carry no types.


_STEPS_PER_SEED = 1_000_003
"""Keeps the orders of two seeds apart."""
_TOKENS = "tokens"
REVERSE_KL = "reverse_kl"
"""Metric, with a teacher: mean of log p - log p_teacher over trained tokens, under the weights before the update."""


class UpdateReport(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one update."""

    logprob_gap: LogprobGap | None
    """None when the present version sampled none of the tokens."""
    entropy: float
    """Mean over trained tokens, before the update."""
    learning_rate: float
    metrics: dict[str, float]
    """veRL's own, by its names: means over minibatches, weighted by their trained tokens. ``rejected``: share of the
    tokens that the correction keeps out, where it has rules for that."""
    tokens: list[TokenColumns]
    """[num_rollouts] what was computed for their tokens, in the order of the batch."""
    num_optimizer_steps: int = 1
    num_skipped_steps: int = 0
    """Optimizer steps that veRL skipped, because their gradient was not finite."""

    @property
    def is_changed(self) -> bool:
        """Whether any optimizer step changed the weights."""
        return self.num_skipped_steps < self.num_optimizer_steps


class PolicyTrainer(Protocol):
    """What the training loop needs of the trained model."""

    def update(self, batch: TrainingBatch, step: int, version: int) -> UpdateReport:
        """Learn from a batch; see ``PolicyUpdate``."""
        ...

    def published_weights(self) -> PublishedWeights:
        """Return what engines get: whole weights, or the adapter alone; must be consumed before the next update."""
        ...

    def save(self, directory: Path) -> None:
        """Write weights and optimizer state."""
        ...

    def load(self, directory: Path) -> None:
        """Read what ``save`` wrote.

        Raises: BadInputError: it has another adapter than the configuration says, or is of more or fewer processes.
        """
        ...


class PolicyUpdate(ABC):
    """One update after the other, wherever the trained model is: subclasses run it.

    Both drivers share this class, so the same batch, seed and step make the same optimizer steps in both.
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._algorithm = resolve_algorithm(config.algorithm)
        algorithm = self._algorithm
        check_own_parts(algorithm)
        check_named_loss(algorithm.loss, algorithm.loss_options, has_reference=algorithm.kl > 0)

    @abstractmethod
    def _infer(self, data: TensorDict, *, reference: bool = False) -> dict[str, Tensor]:
        """Return log-probabilities and entropy, [num_rows, num_response_tokens] each.

        Args:
            data: rows.
            reference: under the first weights rather than the present ones.
        """

    @abstractmethod
    def _make_step(self, minibatch: TensorDict, **fields: object) -> dict[str, float]:
        """Make one optimizer step from all rows of a minibatch; return veRL's metrics.

        Args:
            minibatch: rows with ``row_weights``.
            fields: options for veRL's engine.
        """

    @abstractmethod
    def _set_loss(self, plan: LossPlan) -> None:
        """Compute ``minibatch_loss`` with this plan from now on."""

    @abstractmethod
    def _set_learning_rate(self, rate: float) -> None:
        """Change the rate of the optimizer."""

    def update(self, batch: TrainingBatch, step: int, version: int) -> UpdateReport:
        """Learn from a batch.

        Args:
            batch: at least one sample.
            step: of the run, from 0; determines rates and the order of samples.
            version: policy version of the present weights.
        """
        data = self._measure(pack_batch(batch, self._algorithm))
        gap, entropy = measure_logprob_gap(data, version), float(data["entropy"][data["response_mask"].bool()].mean())
        metrics, tokens = dict[str, float](), data["response_mask"]
        if self._algorithm.distill is not None:
            metrics[REVERSE_KL] = add_teacher(data, self._algorithm.distill)
        if self._algorithm.correction.bypass:
            data["old_log_probs"] = data["rollout_log_probs"]
        else:
            data, of_correction = correct_rollouts(data, data["present"], self._algorithm)
            metrics |= of_correction
        self._set_loss(LossPlan.of(self._algorithm, step, self._config.steps))
        rate = self._config.optimizer.learning_rate.value_at(step, self._config.steps)
        self._set_learning_rate(rate)
        trained = torch.zeros_like(data["response_mask"], dtype=torch.bool)
        tried: list[dict[str, float]] = []
        for rows in self._minibatches(data, step):
            corrected, corrections = rows, dict[str, float]()
            if self._algorithm.correction.bypass:  # without it, the batch has its correction already
                corrected, corrections = correct_rollouts(rows, rows["present"], self._algorithm)
            trained[corrected["row"]] |= corrected["response_mask"].bool()
            tried.append(self._train(corrected, step, corrections))
        found = [one for one in tried if one]
        if self._algorithm.correction.reject:
            num_tokens = float(tokens.sum()) * self._config.optimizer.epochs
            metrics["rejected"] = 1 - sum(one[_TOKENS] for one in found) / num_tokens
        return UpdateReport(
            logprob_gap=gap,
            entropy=entropy,
            learning_rate=rate,
            metrics=_mean_metrics(found) | metrics | {name: found[0][name] for name in (RATIO_GAP,) if found},
            tokens=read_columns(batch, data["present"], data["advantages"], trained, data.get(TEACHER, None)),
            num_optimizer_steps=len(found),
            num_skipped_steps=sum(not isfinite(one["grad_norm"]) for one in found),
        )

    def _measure(self, data: TensorDict) -> TensorDict:
        """Add log-probabilities and entropy under the present weights, and log-probabilities under the first ones."""
        present = self._infer(data)
        added = {"present": present["log_probs"], "old_log_probs": present["log_probs"], "entropy": present["entropy"]}
        if self._algorithm.kl:
            reference = self._infer(data, reference=True)
            added["ref_log_prob"] = reference["log_probs"]
        return data.clone(recurse=False).update(added)

    def _minibatches(self, data: TensorDict, step: int) -> Iterator[TensorDict]:
        """Yield each rollout once per epoch, in a random order, in parts that differ by one rollout at most.

        All rows of a rollout are in the same part. A column ``present`` holds log-probabilities under the weights
        before the part; it is measured only where something is computed from it.
        """
        order = torch.Generator().manual_seed(self._config.seed * _STEPS_PER_SEED + step)
        optimizer = self._config.optimizer
        rows_of = [(data["rollout"] == rollout).nonzero()[:, 0] for rollout in data["rollout"].unique()]
        is_first = True
        for _ in range(optimizer.epochs):
            for part in torch.randperm(len(rows_of), generator=order).tensor_split(optimizer.minibatches):
                if not len(part):
                    continue
                rows = cast("TensorDict", data[torch.cat([rows_of[rollout] for rollout in part])])
                if not is_first and self._needs_present(rows):
                    rows.set("present", self._infer(rows)["log_probs"])
                is_first = False
                yield rows

    def count_microbatch_tokens(self, data: TensorDict) -> int:
        """Return the tokens of a process in a micro-batch, so that the longest row fits."""
        longest, optimizer = int(data["attention_mask"].sum(dim=1).max()), self._config.optimizer
        return max(-(-longest // optimizer.sequence_parallel), optimizer.microbatch_tokens)

    def _needs_present(self, rows: TensorDict) -> bool:
        correction = self._algorithm.correction
        has_weights = correction.weights is not None and self._algorithm.loss == "reinforce"
        has_forks = len(rows["rollout"].unique()) < len(rows)
        is_corrected = correction.bypass and (has_weights or len(correction.reject) > 0)
        return is_corrected or (has_forks and self._algorithm.has_rollout_value)

    def _train(self, minibatch: TensorDict, step: int, metrics: dict[str, float]) -> dict[str, float]:
        """Make one optimizer step.

        Returns: its metrics beside those given, and the number of trained tokens as ``tokens``; nothing when all tokens
            were rejected.
        """
        algorithm = self._algorithm
        rows = RolloutRows(minibatch["rollout"], minibatch["response_mask"])
        if not minibatch["response_mask"].any():
            return {}
        minibatch["row_weights"] = weigh_rows(algorithm, rows)
        if rows.has_forks and algorithm.has_rollout_value:
            minibatch["rollout_mean"] = rollout_means(algorithm, rows, minibatch)
        needs_entropy = algorithm.entropy.value_at(step, self._config.steps) > 0
        found = self._make_step(minibatch, calculate_entropy=needs_entropy, global_batch_size=rows.num_rollouts)
        return found | metrics | {_TOKENS: float(rows.tokens_of_rollout.sum())}


class EmbeddedTrainer(PolicyUpdate):
    """The trained model and its optimizer; no input or output.

    Below torchrun each process has a part of the model. All must make the same calls, with the same batches; each
    computes a share of the rows, and all return the same.
    """

    def __init__(self, config: TrainConfig) -> None:
        torch.set_num_threads(config.optimizer.num_threads)
        enter_platform()
        torch.manual_seed(config.seed)
        super().__init__(config)
        check_sequence_parallel(config, torch.distributed.get_world_size())
        if config.lora:
            check_targets(config.model, config.lora)
        self._worker = _start_worker(config)
        self._adapter = find_adapter(self._module, config.model)
        self._reference = _start_worker(config) if self._algorithm.kl and not self._adapter else None
        """Never trained, so it has no optimizer state. veRL's ``forward_only`` pins memory, which needs a GPU. With an
        adapter, the model without it."""

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (Hugging Face name, whole tensor) of each parameter, adapters added; must be consumed completely."""
        if self._adapter is None:
            tensors, _ = self._worker.engine.get_per_tensor_param()
            yield from tensors
        else:
            yield from merged_weights(self._module, self._adapter)

    def published_weights(self) -> PublishedWeights:
        """Return what engines get; see ``PolicyTrainer``."""
        lora = self._config.lora
        if self._adapter is None or lora is None or lora.publish == "merged":
            return PublishedWeights(self.weights(), None)
        stored = self._module.state_dict()
        factors = ((file_name(name), whole_tensor(tensor)) for name, tensor in stored.items() if is_factor(name))
        return PublishedWeights(factors, self._adapter)

    def save(self, directory: Path) -> None:
        """Write weights and optimizer state."""
        self._worker.save_checkpoint(str(directory))
        if self._adapter is not None:
            self._adapter.save_pretrained(str(directory))

    def load(self, directory: Path) -> None:
        """Read what ``save`` wrote; see ``PolicyTrainer``."""
        check_same(directory, self._adapter)
        check_num_processes(directory, torch.distributed.get_world_size())
        self._worker.load_checkpoint(str(directory))

    @property
    def _module(self) -> nn.Module:
        return self._worker.engine.module  # pyright: ignore[reportAttributeAccessIssue]  # all engines of FSDP have one

    def _infer(self, data: TensorDict, *, reference: bool = False) -> dict[str, Tensor]:
        worker = self._reference or self._worker if reference else self._worker
        fields = {
            "calculate_entropy": True,
            "compute_loss": False,
            "no_lora_adapter": reference and self._adapter is not None,
        }
        rows = self._share(data, **fields)
        output = worker.infer_batch(rows)
        found = {name: no_padding_2_padding(output[name], rows).float() for name in ("log_probs", "entropy")}
        parts = self._config.optimizer.sequence_parallel
        return {name: join_rows(share, len(data), parts) for name, share in found.items()}

    def _make_step(self, minibatch: TensorDict, **fields: object) -> dict[str, float]:
        output = self._worker.train_batch(self._share(minibatch, **fields))
        found: dict[str, float] = {}
        for name, value in tu.get(output, "metrics").items():  # over processes and microbatches, by veRL's rules
            is_metric = isinstance(value, list) and isinstance(value[0], Metric)
            found[name] = float(Metric.aggregate_dp(value) if is_metric else np.mean(value))
        return found

    def _set_loss(self, plan: LossPlan) -> None:
        self._worker.set_loss_fn(make_loss(plan))

    def _share(self, data: TensorDict, **fields: object) -> TensorDict:
        """Return the rows of this process in the form of veRL's engines, with options."""
        share = share_rows(data, self._config.optimizer.sequence_parallel)
        rows = left_right_2_no_padding(share.clone(recurse=False))
        tokens = self.count_microbatch_tokens(data)  # of all rows: each process must have the same limit
        tu.assign_non_tensor(rows, use_dynamic_bsz=True, max_token_len_per_gpu=tokens, **fields)
        return rows

    def _set_learning_rate(self, rate: float) -> None:
        for group in self._worker.engine.optimizer.param_groups:  # pyright: ignore[reportAttributeAccessIssue]  # all engines that train have one
            group["lr"] = rate


def _start_worker(config: TrainConfig) -> TrainingWorker:
    contents = ["model", "optimizer"]
    optimizer = verl_arguments(
        config.verl,
        OPTIMIZER,
        lr=config.optimizer.learning_rate.start,
        betas=config.optimizer.betas,
        weight_decay=config.optimizer.weight_decay,
        clip_grad=config.optimizer.clip_grad,
    )
    lora = config.lora
    adapter: dict[str, object] = {}
    if lora:
        adapter = {"lora_rank": lora.rank, "lora_alpha": lora.alpha, "target_modules": lora.target_modules}
    model = verl_arguments(
        config.verl,
        MODEL,
        path=str(config.model),
        use_remove_padding=True,
        enable_gradient_checkpointing=config.optimizer.gradient_checkpointing,
        override_config={"attn_implementation": PACKED_ATTENTION},
        **adapter,
    )
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=HFModelConfig(**model),
            engine_config=_engine_config(config),
            optimizer_config=FSDPOptimizerConfig(**optimizer),
            checkpoint_config=CheckpointConfig(save_contents=contents, load_contents=contents),
        )
    )
    worker.engine.is_mp_src_rank_with_outputs = lambda: True  # veRL's others compute the same, and would return nothing
    worker.reset()
    return worker


def _engine_config(config: TrainConfig) -> FSDPEngineConfig:
    compute = {"float32": "fp32", "bfloat16": "bf16"}[config.optimizer.precision]
    engine = verl_arguments(
        config.verl,
        ENGINE,
        strategy="fsdp2",
        model_dtype="fp32",
        mixed_precision={"param_dtype": compute, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
        use_dynamic_bsz=True,
        use_torch_compile=False,
        ulysses_sequence_parallel_size=config.optimizer.sequence_parallel,
        use_no_sync_for_gradient_accumulation=False,  # else each process keeps the whole gradient between micro-batches
    )
    return FSDPEngineConfig(**engine)


def _mean_metrics(minibatches: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over minibatches, weighted by their trained tokens."""
    total = sum(found[_TOKENS] for found in minibatches)
    names = [name for name in minibatches[0] if name != _TOKENS] if minibatches else []
    return {name: sum(found[name] * found[_TOKENS] for found in minibatches) / total for name in names}
