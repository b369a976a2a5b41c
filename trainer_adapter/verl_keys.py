"""Keys of veRL that a configuration passes through, by veRL's own dotted names, and keys that have an option of ours.

What is here needs no veRL; ``trainer_adapter.verl`` knows its dataclasses, and refuses keys that they do not have.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from agent_layer.errors import BadInputError

OPTIMIZER: Final = "actor_rollout_ref.actor.optim"
ENGINE: Final = "actor_rollout_ref.actor.fsdp_config"
MODEL: Final = "actor_rollout_ref.model"
SECTIONS: Final = (OPTIMIZER, ENGINE, MODEL)
"""Parts of veRL's configuration that the embedded trainer reads."""

PACKED_ATTENTION: Final = "agent_layer_rows"
"""Name, among the attentions of transformers, of that over rows without padding."""
CHUNK_TOKENS: Final = 1024
"""Tokens whose logits exist at a time."""
_ACTOR: Final = "actor_rollout_ref.actor"

_OURS: Final[dict[str, dict[str, str]]] = {
    OPTIMIZER: {
        "optimizer.learning_rate": "lr lr_warmup_steps lr_warmup_steps_ratio lr_scheduler_type min_lr_ratio num_cycles"
        " warmup_style zero_indexed_step override_optimizer_config.lr",
        "optimizer.betas": "betas override_optimizer_config.betas",
        "optimizer.weight_decay": "weight_decay override_optimizer_config.weight_decay",
        "optimizer.clip_grad": "clip_grad grad_clip",
        "steps": "total_training_steps",
    },
    ENGINE: {
        "optimizer.precision": "dtype model_dtype mixed_precision",
        "optimizer.microbatch_tokens": "use_dynamic_bsz max_token_len_per_gpu micro_batch_size_per_gpu"
        " infer_max_token_len_per_gpu infer_micro_batch_size_per_gpu",
        "no other: rows are always packed": "use_remove_padding use_fused_kernels",
        "optimizer.sequence_parallel": "ulysses_sequence_parallel_size",
        "seed": "seed",
        "no other: it runs fsdp2, forward and backward": "strategy forward_only",
    },
    MODEL: {
        "model": "path local_path hf_config_path local_hf_config_path tokenizer_path local_tokenizer_path"
        " load_tokenizer use_shm hf_config generation_config tokenizer processor model_type architectures",
        "optimizer.gradient_checkpointing": "enable_gradient_checkpointing",
        "no other: rows are always packed": "use_remove_padding use_fused_kernels",
        "lora.rank": "lora_rank",
        "lora.alpha": "lora_alpha",
        "lora.target_modules": "target_modules target_parameters exclude_modules",
        "lora": "lora lora_adapter_path",
    },
    _ACTOR: {
        "algorithm.clip_low and algorithm.clip_high": "clip_ratio clip_ratio_low clip_ratio_high",
        "algorithm.clip_dual": "clip_ratio_c",
        "algorithm.tau_positive": "tau_pos",
        "algorithm.tau_negative": "tau_neg",
        "algorithm.loss": "policy_loss",
        "algorithm.correction": "policy_loss.rollout_correction",
        "algorithm.loss_mean": "loss_agg_mode",
        "algorithm.loss_scale_factor": "loss_scale_factor",
        "algorithm.entropy": "entropy_coeff",
        "algorithm.kl": "use_kl_loss kl_loss_coef",
        "algorithm.kl_estimator": "kl_loss_type",
        "optimizer.epochs": "ppo_epochs",
        "optimizer.minibatches": "ppo_mini_batch_size",
        "optimizer.microbatch_tokens": "ppo_micro_batch_size ppo_micro_batch_size_per_gpu ppo_max_token_len_per_gpu"
        " ppo_infer_max_token_len_per_gpu use_dynamic_bsz",
        "no other: rows are always packed": "use_remove_padding use_fused_kernels",
        "optimizer.sequence_parallel": "ulysses_sequence_parallel_size",
        "optimizer.clip_grad": "grad_clip",
        "keep": "checkpoint",
        "seed": "data_loader_seed",
    },
    "actor_rollout_ref.rollout": {"rollouts.group_size": "n", "rollouts.temperature": "temperature"},
    "algorithm": {
        "algorithm.estimator": "adv_estimator",
        "algorithm.scale_by_std": "norm_adv_by_std_in_grpo",
        "algorithm.correction": "rollout_correction",
        "algorithm.discount": "gamma",
        "algorithm.kl": "kl_ctrl",
        "rollouts.extra_groups": "filter_groups",
    },
    "trainer": {
        "steps": "total_epochs total_training_steps",
        "keep": "save_freq max_actor_ckpt_to_keep",
        "the setting AGENT_LAYER_DIR": "default_local_dir",
    },
    "data": {"tasks": "train_files", "rollouts.groups_per_step": "train_batch_size"},
}
"""Keys of veRL by section, and the option of ours that stands for them; a key also stands for those below it."""
_OPTION_OF: Final = {
    f"{section}.{name}": option
    for section, options in _OURS.items()
    for option, names in options.items()
    for name in names.split()
}


def refuse_our_keys(options: Mapping[str, object]) -> None:
    """Raise BadInputError for the first key that has an option of ours, or that no embedded trainer reads."""
    for key in options:
        for part in _with_parents(key):
            if part in _OPTION_OF:
                raise BadInputError(f"verl.{key}: expected keys that this trainer does not set; use {_OPTION_OF[part]}")
        if not key.startswith(tuple(f"{section}." for section in SECTIONS)):
            raise BadInputError(
                f"verl.{key}: the embedded trainer reads no such key; it reads those below {', '.join(SECTIONS)}"
                f"{suggest(key, [*SECTIONS, *_OPTION_OF])}"
            )


def refuse_keys_of_options(options: Mapping[str, object]) -> None:
    """Raise BadInputError for the first key that has an option of ours."""
    for key in options:
        for part in _with_parents(key):
            if part in _OPTION_OF:
                raise BadInputError(
                    f"cluster.verl.{key}: expected keys that this trainer does not set; use {_OPTION_OF[part]}"
                )


def keys_below(options: Mapping[str, object], section: str) -> dict[str, object]:
    """Return the options of a section, their names without it."""
    start = f"{section}."
    return {key.removeprefix(start): value for key, value in options.items() if key.startswith(start)}


def suggest(key: str, known: Iterable[str]) -> str:
    """Return a question that names the closest known key; empty: none is close."""
    names = list(known)
    found = [name for name in names if name.startswith(key)] or get_close_matches(key, names, n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def _with_parents(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
