"""GPUs of a run on Ray, by arithmetic: what is on which, what fits into the memory of one, and how many rollouts.

An engine takes its share of the memory when it starts, whatever its model needs, and keeps cached prompts in the rest.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from agent_layer.infra import format_count
from trainer_adapter.cluster import choose_mode
from trainer_adapter.config import ClusterConfig, TrainConfig
from trainer_adapter.start.memory import MemoryPart, ModelShape, estimate_memory, sum_bytes

_GIGABYTE = 10**9
_FLOAT = 4
"""Bytes of float32."""


class FoundGpus(NamedTuple):
    """GPUs of a machine."""

    number: int | None
    """None: those of a cluster count, which are known when it is joined."""
    num_bytes: int | None
    """Memory of one; None: not known."""


class EngineEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """One engine of a run, whose model ``tensor_parallel`` GPUs share."""

    weights: MemoryPart
    """On each of its GPUs."""
    cache_token: MemoryPart
    """Keys and values of one token, on each of its GPUs."""
    context: int
    """Longest sequence."""
    cache_bytes: int | None
    """On each of its GPUs; None: the memory of a GPU is not known."""

    @property
    def num_cached_tokens(self) -> int | None:
        """Tokens whose keys and values fit; None: not known."""
        return None if self.cache_bytes is None else max(0, self.cache_bytes) // self.cache_token.num_bytes


class GpuPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the GPUs of a run hold."""

    mode: str
    num_trainer: int
    """GPUs that share the trained model."""
    num_engine: int
    """GPUs of engines; in collocated modes those of the trainer."""
    tensor_parallel: int
    gpu_bytes: int | None
    """Memory of one; None: not known."""
    num_found: int | None
    """GPUs of this machine; None: those of a cluster count."""
    sampling: list[MemoryPart]
    """On a GPU of the trainer, while engines sample."""
    update: list[MemoryPart]
    """On a GPU of the trainer during an update, for which collocated engines free their memory."""
    sending: list[MemoryPart]
    """On a GPU of the trainer, while collocated engines get weights and have no cache yet."""
    engine: EngineEstimate
    groups_per_step: int
    group_size: int
    max_staleness: int
    ask_ahead_steps: int

    @property
    def is_separate(self) -> bool:
        """Whether engines have GPUs of their own."""
        return self.mode == "separate_async"

    @property
    def num_all(self) -> int:
        """GPUs of the run."""
        return self.num_trainer + (self.num_engine if self.is_separate else 0)

    @property
    def num_engines(self) -> int:
        """Engines of the run."""
        return self.num_engine // self.tensor_parallel

    @property
    def rollouts_begun(self) -> int:
        """Most rollouts that have begun and are not trained; groups that ask ahead wait in the queue."""
        return self.groups_per_step * self.group_size * (1 + self.max_staleness)

    @property
    def rollouts_at_full_length(self) -> int | None:
        """Rollouts that are as long as can be, and whose tokens all engines together keep; None: not known."""
        tokens = self.engine.num_cached_tokens
        return None if tokens is None else self.num_engines * (tokens // self.engine.context)

    @property
    def cached_tokens_of_rollout(self) -> int | None:
        """Tokens of each rollout on the way that engines keep, if all are played at once; None: not known."""
        tokens = self.engine.num_cached_tokens
        return None if tokens is None else self.num_engines * tokens // self.rollouts_begun


def plan_gpus(
    config: TrainConfig, shape: ModelShape, found: FoundGpus, *, num_groups: int, context: int, bucket_megabytes: int
) -> GpuPlan:
    """Return what the GPUs of a run hold.

    Args:
        config: of the run.
        shape: of its model.
        found: GPUs of this machine, or of the one that is planned for.
        num_groups: of one step.
        context: longest sequence of an engine.
        bucket_megabytes: in which veRL sends weights.
    """
    gpu_bytes = found.num_bytes
    cluster = config.cluster or ClusterConfig()
    is_separate = choose_mode(config) == "separate_async"
    num_trainer = cluster.gpus_per_node * cluster.nodes
    size = {"float32": 4, "bfloat16": 2}[config.optimizer.precision]
    estimate = estimate_memory(config, shape, num_ranks=num_trainer)
    share, parallel = cluster.engine_memory, cluster.tensor_parallel
    weights = _part("engine's weights", shape.num_parameters * size // parallel, f"{shape.num_parameters:,} x {size} B")
    layers, width = shape.num_hidden_layers, shape.key_size
    token = _part(
        "keys and values of a token",
        2 * layers * width * size // parallel,
        f"2 x {layers} layers x {width:,} x {size} B",
    )
    if parallel > 1:
        weights, token = (
            msgspec.structs.replace(one, arithmetic=f"{one.arithmetic} / {parallel} GPUs") for one in (weights, token)
        )
    sampling = list(estimate.states)
    if not is_separate and gpu_bytes is not None:
        arithmetic = f"{share:g} x {gpu_bytes / _GIGABYTE:,.1f} GB, cluster.engine_memory"
        sampling.append(_part("engine", int(share * gpu_bytes), arithmetic))
    largest, buckets = shape.largest_tensor, 2 if is_separate else 1
    sending = [
        *estimate.states,
        _part("largest tensor", largest * _FLOAT, f"{largest:,} x {_FLOAT} B, gathered: weights are sent in float32"),
        _part(
            "buckets" if is_separate else "bucket",
            buckets * bucket_megabytes * 2**20,
            f"{buckets} x {bucket_megabytes:,} x 2^20 B, which veRL sends at once",
        ),
        *([] if is_separate else [weights]),
    ]
    return GpuPlan(
        mode=choose_mode(config),
        num_trainer=num_trainer,
        num_engine=cluster.engine_gpus if is_separate else num_trainer,
        tensor_parallel=parallel,
        gpu_bytes=gpu_bytes,
        num_found=found.number,
        sampling=sampling,
        update=[*estimate.states, *estimate.update],
        sending=sending,
        engine=EngineEstimate(
            weights=weights,
            cache_token=token,
            context=context,
            cache_bytes=None if gpu_bytes is None else int(share * gpu_bytes) - weights.num_bytes,
        ),
        groups_per_step=num_groups,
        group_size=config.rollouts.group_size,
        max_staleness=config.rollouts.max_staleness,
        ask_ahead_steps=config.rollouts.ask_ahead_steps,
    )


def write_gpus(plan: GpuPlan) -> Iterator[str]:
    """Yield the lines of a plan."""
    known = "memory not known: set cluster.gpu_gigabytes" if plan.gpu_bytes is None else f"{_gb(plan.gpu_bytes)} each"
    place = "in a Ray cluster" if plan.num_found is None else f"this machine has {plan.num_found}"
    yield f"GPUs: {plan.num_all}, {known}; {place}"
    place = "beside them" if plan.is_separate else "on the same"
    yield f"  {plan.mode}: {_trainer(plan)}; {_engines(plan)} {place}"
    for name, parts in (("sampling", plan.sampling), ("update", plan.update), ("weights", plan.sending)):
        terms = " + ".join(f"{part.name} {part.num_bytes / _GIGABYTE:,.1f}" for part in parts)
        yield f"  {name:<9}{_gb(sum_bytes(parts)):>10} on a GPU that trains = {terms}"
    engine = plan.engine
    yield f"  {'engine':<9}{_gb(engine.weights.num_bytes):>10}  weights = {engine.weights.arithmetic}"
    cache = engine.cache_token
    yield f"  {'engine':<9}{cache.num_bytes / 1e3:>7,.1f} kB  {cache.name} = {cache.arithmetic}"
    if (tokens := engine.num_cached_tokens) is not None:
        yield (
            f"  {'engine':<9}{_gb(max(0, engine.cache_bytes or 0)):>10}  cache of at most {tokens:,} tokens: "
            f"{plan.rollouts_at_full_length:,} rollouts of {engine.context:,} tokens in all engines"
        )
    yield (
        f"rollouts: at most {plan.rollouts_begun:,} begun and not trained = {plan.groups_per_step} groups x"
        f" {plan.group_size} x (1 + max_staleness {plan.max_staleness})"
        + (
            f"; played at once, {tokens:,} tokens of each are in a cache"
            if (tokens := plan.cached_tokens_of_rollout)
            else ""
        )
    )


def find_gpu_faults(plan: GpuPlan) -> list[str]:
    """Return what does not fit, a sentence each."""
    faults: list[str] = []
    if plan.num_found is not None and plan.num_found < plan.num_all:
        wanted = f"{plan.num_all} GPU{'s' * (plan.num_all > 1)}"
        faults.append(f"cluster: expected {wanted} on this machine for trainer and engines, found {plan.num_found}")
    if plan.gpu_bytes is None:
        return faults
    remedies = {
        "an update": "lower optimizer.microbatch_tokens, set optimizer.gradient_checkpointing or sequence_parallel",
        "engine and states of the trainer": "lower cluster.engine_memory",
        "new weights": "lower veRL's update_weights_bucket_megabytes",
    }
    for (what, remedy), parts in zip(remedies.items(), (plan.update, plan.sampling, plan.sending), strict=True):
        if (needed := sum_bytes(parts)) > plan.gpu_bytes:
            faults.append(
                f"memory: expected {what} within {_gb(plan.gpu_bytes)} of a GPU, found {_gb(needed)}; {remedy}, or"
                " share the model among more GPUs"
            )
    if (plan.engine.num_cached_tokens or 0) < plan.engine.context:
        faults.append(
            f"memory: expected an engine that keeps {plan.engine.context:,} tokens, found"
            f" {plan.engine.num_cached_tokens or 0:,}; raise cluster.engine_memory or tensor_parallel, or lower"
            " cluster.max_model_len"
        )
    return faults


def read_gpu_bytes(config: TrainConfig) -> int | None:
    """Return the memory of a GPU as the configuration has it; None: it does not say."""
    gigabytes = (config.cluster or ClusterConfig()).gpu_gigabytes
    return None if gigabytes is None else gigabytes * _GIGABYTE


def _trainer(plan: GpuPlan) -> str:
    return "one trains the model" if plan.num_trainer == 1 else f"{plan.num_trainer} share the trained model"


def _engines(plan: GpuPlan) -> str:
    return f"{format_count(plan.num_engines, 'engine')}, {format_count(plan.tensor_parallel, 'GPU')} for each,"


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / _GIGABYTE:,.1f} GB"


def _part(name: str, num_bytes: int, arithmetic: str) -> MemoryPart:
    return MemoryPart(name=name, num_bytes=num_bytes, arithmetic=arithmetic)
