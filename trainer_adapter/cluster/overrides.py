"""A run's configuration as veRL's: every key that the driver on Ray sets, and what it cannot honour.

What is here needs no veRL, except to compose the whole configuration and to check it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from agent_layer.errors import BadInputError
from agent_layer.local import choose_parsers
from trainer_adapter.algorithms import resolve_algorithm
from trainer_adapter.config import ClusterConfig, TrainConfig
from trainer_adapter.model_sizes import check_sequence_parallel, read_context_length
from trainer_adapter.verl_keys import PACKED_ATTENTION, refuse_keys_of_options

if TYPE_CHECKING:
    from omegaconf import DictConfig

_ACTOR, _ROLLOUT, _MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
_ENGINE, _REFERENCE = f"{_ACTOR}.fsdp_config", "actor_rollout_ref.ref.fsdp_config"
MARK = "AGENT_LAYER_RAY_DIRECTORY"
"""Variable that all processes of a run on Ray carry, with the run's directory as value."""
_LISTEN = "AGENT_LAYER_RAY_LISTEN"
"""Variable of processes on a joined cluster, whose servers listen at the address of their machine ("machine")."""
CODE = "AGENT_LAYER_RAY_CODE"
"""Variable of all processes: the directory in which the run was started, where losses of users may be."""
_NO_LIMIT = 1_000_000
_BYTES = 2**30
_FILES = "agent_layer_files"
"""Transfer of weights to separate servers where there is no GPU."""


def refuse_on_ray(config: TrainConfig) -> None:
    """Raise BadInputError for the first option that the driver on Ray cannot honour."""
    for option, found in _unsupported(config):
        raise BadInputError(f"{option}: the driver on Ray {found}; leave it out, or train without --on ray")
    cluster = config.cluster or ClusterConfig()
    check_sequence_parallel(config, cluster.nodes * cluster.gpus_per_node)
    refuse_keys_of_options(cluster.verl)


def choose_mode(config: TrainConfig) -> str:
    """Return veRL's mode: the named one, else ``sync`` for on-policy runs and ``colocate_async`` for others."""
    named = (config.cluster or ClusterConfig()).mode
    return named or ("sync" if config.rollouts.max_staleness == 0 else "colocate_async")


def count_gpus(config: TrainConfig) -> int:
    """Return the number of GPUs on each machine, or of processes that take their place."""
    cluster = config.cluster or ClusterConfig()
    return cluster.gpus_per_node + (cluster.engine_gpus if choose_mode(config) == "separate_async" else 0)


def verl_overrides(
    config: TrainConfig, directory: Path, *, num_groups: int, on_cpu: bool, address: str | None = None
) -> dict[str, object]:
    """Return values by veRL's dotted names.

    Args:
        config: of the run.
        directory: of this start: ``train.json``, ``stop``.
        num_groups: of one step.
        on_cpu: whether there is no GPU.
        address: of the Ray cluster to join; None: Ray starts on this machine.
    """
    cluster = config.cluster or ClusterConfig()
    context = read_context_length(config)
    dtype = {"float32": "fp32", "bfloat16": "bf16"}[config.optimizer.precision]
    optimizer, algorithm = config.optimizer, resolve_algorithm(config.algorithm)
    tokens = optimizer.microbatch_tokens
    found: dict[str, object] = {
        "agent_layer.config": str(directory / "train.json"),
        "agent_layer.stop": str(directory / "stop"),
        "trainer.v1.trainer_mode": f"agent_layer_{choose_mode(config)}",
        "trainer.device": "cpu" if on_cpu else "cuda",
        "trainer.n_gpus_per_node": cluster.gpus_per_node,
        "trainer.nnodes": cluster.nodes,
        "trainer.total_training_steps": config.steps,
        "trainer.total_epochs": _NO_LIMIT,
        "trainer.logger": ["console"],
        "trainer.project_name": "agent-layer",
        "trainer.experiment_name": config.run or "run",
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": -1,
        "trainer.resume_mode": "disable",
        "data.train_files": "",
        "data.val_files": "",
        "data.custom_cls.path": "pkg://trainer_adapter.cluster.rows",
        "data.custom_cls.name": "SlotDataset",
        "data.num_steps": config.steps,
        "data.train_batch_size": num_groups,
        "data.val_batch_size": num_groups,
        "data.dataloader_num_workers": 0,
        "data.max_prompt_length": context,
        "data.max_response_length": context,
        "algorithm.adv_estimator": "grpo",
        "algorithm.use_kl_in_reward": False,
        "reward.num_workers": 1,
        f"{_MODEL}.path": str(config.model),
        f"{_MODEL}.use_remove_padding": True,
        f"{_MODEL}.enable_gradient_checkpointing": optimizer.gradient_checkpointing,
        f"{_MODEL}.override_config.attn_implementation": PACKED_ATTENTION,
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_ACTOR}.data_loader_seed": config.seed,
        f"{_ACTOR}.ppo_mini_batch_size": num_groups,
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": tokens,
        f"{_ACTOR}.use_torch_compile": False,
        f"{_ACTOR}.ulysses_sequence_parallel_size": optimizer.sequence_parallel,
        f"{_ACTOR}.use_kl_loss": algorithm.kl > 0,
        f"{_ACTOR}.optim.lr": optimizer.learning_rate.start,
        f"{_ACTOR}.optim.betas": list(optimizer.betas),
        f"{_ACTOR}.optim.weight_decay": optimizer.weight_decay,
        f"{_ACTOR}.optim.clip_grad": optimizer.clip_grad,
        f"{_ACTOR}.optim.lr_scheduler_type": "constant",
        f"{_ACTOR}.checkpoint.save_contents": ["model", "optimizer"],
        f"{_ACTOR}.checkpoint.load_contents": ["model", "optimizer"],
        **{
            f"{engine}.{name}": value
            for engine in (_ENGINE, _REFERENCE)
            for name, value in {
                "model_dtype": "fp32",
                "use_torch_compile": False,
                "ulysses_sequence_parallel_size": optimizer.sequence_parallel,
                "mixed_precision": {"param_dtype": dtype, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
            }.items()
        },
        "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": True,
        "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": tokens,
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.n": config.rollouts.group_size,
        f"{_ROLLOUT}.temperature": config.rollouts.temperature or 1.0,
        f"{_ROLLOUT}.dtype": optimizer.precision,
        f"{_ROLLOUT}.tensor_model_parallel_size": cluster.tensor_parallel,
        f"{_ROLLOUT}.gpu_memory_utilization": cluster.engine_memory,
        f"{_ROLLOUT}.max_model_len": context,
        f"{_ROLLOUT}.calculate_log_probs": True,
        f"{_ROLLOUT}.logprobs_mode": "processed_logprobs",
        f"{_ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": tokens,
        f"{_ROLLOUT}.agent.num_workers": 1,
        f"{_ROLLOUT}.agent.agent_loop_manager_class": "trainer_adapter.cluster.rows.SlotManager",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }
    parsers = choose_parsers(config.model, config.tool_parser, config.reasoning_parser)
    found |= {f"{_ROLLOUT}.engine_kwargs.vllm.{name}": value for name, value in parsers.engine_arguments.items()}
    if lora := config.lora:
        found |= {
            f"{_MODEL}.lora_rank": lora.rank,
            f"{_MODEL}.lora_alpha": lora.alpha,
            f"{_MODEL}.target_modules": lora.target_modules,
            f"{_MODEL}.lora.merge": lora.publish == "merged",
        }
        if lora.publish == "adapter":  # servers read the base from its files, once; veRL's default are random weights
            found |= {f"{_ROLLOUT}.load_format": "auto"}
    if choose_mode(config) == "separate_async":
        found |= {
            "actor_rollout_ref.hybrid_engine": False,
            f"{_ROLLOUT}.nnodes": 1,
            f"{_ROLLOUT}.n_gpus_per_node": cluster.engine_gpus,
            f"{_ROLLOUT}.checkpoint_engine.backend": _FILES if on_cpu else "nccl",
            f"{_ROLLOUT}.checkpoint_engine.custom_backend_module": "trainer_adapter.cluster.weights.file_transfer",
            f"{_ROLLOUT}.checkpoint_engine.engine_kwargs.{_FILES}.directory": str(directory / "weights"),
            "trainer.v1.separate_async.parameter_sync_step": 1,
        }
    if on_cpu:
        found |= {
            f"{_ROLLOUT}.enforce_eager": True,
            f"{_ROLLOUT}.enable_chunked_prefill": False,  # as agent_layer.local.vllm says
            f"{_ROLLOUT}.enable_sleep_mode": False,
            f"{_ROLLOUT}.free_cache_engine": False,
            f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": 16,
        }
    found |= _ray_options(config, directory, on_cpu=on_cpu, address=address)
    return found | config.verl | cluster.verl


def _ray_options(config: TrainConfig, directory: Path, *, on_cpu: bool, address: str | None) -> dict[str, object]:
    """Return how Ray starts, or how its cluster is joined: its processes are no children of ours."""
    init = "ray_kwargs.ray_init"
    if address is not None:
        variables = make_environment(config, directory, on_cpu=on_cpu, is_joined=True)
        return {f"{init}.address": address, f"{init}.runtime_env.env_vars": variables}
    found: dict[str, object] = {f"{init}.include_dashboard": False}
    if on_cpu:
        found |= {
            f"{init}._node_ip_address": "127.0.0.1",
            f"{init}.num_cpus": 5 + 3 * count_gpus(config),
            f"{init}.num_gpus": count_gpus(config),
            f"{init}.object_store_memory": _BYTES // 4,
        }
    return found


def compose_config(overrides: dict[str, object]) -> "DictConfig":
    """Return veRL's whole configuration with these values by dotted name."""
    from hydra import compose, initialize_config_module  # noqa: PLC0415  # comes with veRL
    from omegaconf import OmegaConf  # noqa: PLC0415

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer")
    OmegaConf.set_struct(config, value=False)
    for name, value in overrides.items():
        OmegaConf.update(config, name, value, force_add=True)
    return config


def check_config(config: "DictConfig") -> None:
    """Raise what veRL's own check raises, such as for a key that its sections do not have."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy  # noqa: PLC0415  # veRL takes seconds
    from verl.utils.config import omega_conf_to_dataclass, validate_config  # noqa: PLC0415  # pyright: ignore[reportUnknownVariableType]  # untyped

    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)


def make_environment(config: TrainConfig, directory: Path, *, on_cpu: bool, is_joined: bool = False) -> dict[str, str]:
    """Return the variables of all processes of veRL; none is a secret: a joined cluster shows them to its users."""
    cluster = config.cluster or ClusterConfig()
    variables = {
        MARK: str(directory),
        CODE: str(Path.cwd()),
        "SPT_NOENV": "1",  # Ray and vLLM show titles, and would overwrite the mark
        "VERL_USE_EXTERNAL_MODULES": "trainer_adapter.cluster.plugin",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_DASHBOARD": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": str(config.optimizer.num_threads),
        "HYDRA_FULL_ERROR": "1",
        "VERL_LOGGING_LEVEL": "WARNING",  # separate_async logs with an argument that Python's logging does not know
        "PYTHONWARNINGS": "ignore",
    }
    if is_joined:
        variables |= {_LISTEN: "machine"}
    if on_cpu:
        paths = [str(directory / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables |= {
            "VERL_PLATFORM": "cpu",
            "TORCH_COMPILE_DISABLE": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(cluster.cpu_cache_gigabytes),
            "PYTHONPATH": os.pathsep.join(paths),
        }
    return variables


def is_reached_from_other_machines() -> bool:
    """Return whether servers of this process listen at the address of their machine; else on loopback."""
    return os.environ.get(_LISTEN) == "machine"


def _unsupported(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """Yield options that are set, and why they cannot be."""
    cluster = config.cluster or ClusterConfig()
    algorithm = resolve_algorithm(config.algorithm)
    mode = choose_mode(config)
    if mode == "sync" and config.rollouts.max_staleness > 0:
        yield f"rollouts.max_staleness {config.rollouts.max_staleness}", "is on-policy in mode sync: it must be 0"
    if mode == "separate_async" and cluster.engine_gpus % cluster.tensor_parallel:
        yield (
            f"cluster.engine_gpus {cluster.engine_gpus}",
            "has whole engines: it must be a multiple of tensor_parallel",
        )
    if algorithm.correction.bypass and cluster.nodes * cluster.gpus_per_node > 1:
        yield "algorithm.correction.bypass", "has it with one process only"
    if algorithm.has_rollout_value and config.optimizer.epochs > 1:
        yield (
            f"optimizer.epochs {config.optimizer.epochs} with loss {algorithm.loss}",
            "has it with one epoch only: veRL's store keeps a rollout's mean, which a later epoch would find",
        )
    if cluster.nodes > 1 and mode != "separate_async" and cluster.gpus_per_node % cluster.tensor_parallel:
        yield (
            f"cluster.tensor_parallel {cluster.tensor_parallel}",
            "has each engine on one machine: gpus_per_node must be a multiple of it",
        )
    yield from _unheeded(cluster)
    named = {**config.verl, **cluster.verl}
    engines = {f"{_ACTOR}.strategy": "fsdp2", "actor_rollout_ref.ref.strategy": "fsdp2", "model_engine": "dp"}
    others = ((name, own, named[name]) for name, own in engines.items() if named.get(name, own) != own)
    for name, own, found in others:
        reason = "learning rate, packed rows, export and checks of checkpoints are FSDP2's, and would not hold for it"
        yield f"{name} {found}", f"trains with {own} only: {reason}"


def _unheeded(cluster: ClusterConfig) -> Iterator[tuple[str, str]]:
    """Yield keys of veRL that would be taken and change nothing."""
    for name in cluster.verl:
        if name.startswith("distillation."):
            yield f"cluster.verl.{name}", "asks a teacher about every row itself: set algorithm.distill"
