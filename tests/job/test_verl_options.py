"""Keys that pass through to veRL change what veRL uses; those that it does not have are refused by name.

torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.config import OptimizerConfig, Schedule, TrainConfig

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

ACTOR, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"


def start(model, **verl):
    from trainer_adapter.verl.trainer import EmbeddedTrainer

    optimizer = OptimizerConfig(learning_rate=Schedule(start=0.5), weight_decay=0.25)
    return EmbeddedTrainer(TrainConfig(model=model, tasks=[], steps=1, optimizer=optimizer, verl=verl))._worker.engine


def check(**verl):
    from trainer_adapter.verl.options import check_verl_options

    check_verl_options(verl)


def test_without_keys_the_optimizer_is_adamw(model):
    engine = start(model)

    assert type(engine.optimizer).__name__ == "AdamW"
    assert engine.optimizer.defaults["eps"] == 1e-8
    assert engine.engine_config.reshard_after_forward


def test_keys_reach_verls_optimizer_beside_our_options(model):
    engine = start(
        model,
        **{
            f"{ACTOR}.optim.optimizer": "RMSprop",
            f"{ACTOR}.optim.override_optimizer_config.eps": 1e-3,
            f"{ACTOR}.optim.override_optimizer_config": {"momentum": 0.5},
        },
    )

    assert type(engine.optimizer).__name__ == "RMSprop"
    (group,) = engine.optimizer.param_groups
    assert (group["eps"], group["momentum"]) == (1e-3, 0.5)
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)


def test_keys_reach_verls_engine_and_model(model):
    engine = start(
        model,
        **{
            f"{ACTOR}.fsdp_config.reshard_after_forward": False,
            f"{ACTOR}.fsdp_config.qat.group_size": 32,
            f"{MODEL}.override_config.rope_theta": 77.0,
        },
    )

    assert engine.engine_config.reshard_after_forward is False
    assert engine.engine_config.qat.group_size == 32
    assert engine.model_config.hf_config.rope_theta == 77.0
    assert engine.model_config.hf_config._attn_implementation == "agent_layer_rows", "ours stays beside it"


@pytest.mark.parametrize(
    ("key", "closest"),
    [
        (f"{ACTOR}.optim.optimiser", f"{ACTOR}.optim.optimizer"),
        (f"{ACTOR}.fsdp_config.reshard", f"{ACTOR}.fsdp_config.reshard_after_forward"),
        (f"{ACTOR}.fsdp_config.qat.groupsize", f"{ACTOR}.fsdp_config.qat.group_size"),
        (f"{MODEL}.use_ligr", f"{MODEL}.use_liger"),
    ],
)
def test_a_key_that_verl_does_not_have_is_refused_with_the_closest(key, closest):
    with pytest.raises(BadInputError, match=rf"verl\.{key}: veRL has no such key; did you mean {closest}\?"):
        check(**{key: 1})


def test_a_value_of_another_type_is_refused():
    with pytest.raises(BadInputError, match=r"reshard_after_forward: Expected `bool`, got `str`"):
        check(**{f"{ACTOR}.fsdp_config.reshard_after_forward": "no"})


def test_every_key_that_is_ours_is_one_of_verls():
    from trainer_adapter.verl.options import _DATACLASSES
    from trainer_adapter.verl_keys import _OPTION_OF, keys_below

    for section, kind in _DATACLASSES.items():
        names = {name.partition(".")[0] for name in keys_below(_OPTION_OF, section)}
        assert names <= set(kind.__dataclass_fields__), section
