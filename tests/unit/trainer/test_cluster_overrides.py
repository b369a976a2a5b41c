"""What a configuration becomes for stock veRL on Ray."""

from pathlib import Path

import msgspec
import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.algorithms import AlgorithmConfig
from trainer_adapter.cluster.overrides import (
    MARK,
    count_gpus,
    is_reached_from_other_machines,
    make_environment,
    refuse_on_ray,
    verl_overrides,
)
from trainer_adapter.config import ClusterConfig, LoraConfig, OptimizerConfig, RolloutConfig, SourceConfig, TrainConfig

ROLLOUT = "actor_rollout_ref.rollout"
INIT = "ray_kwargs.ray_init."


def configure(max_staleness: int = 1, **cluster: object) -> TrainConfig:
    return TrainConfig(
        model=Path("model"),
        tasks=[SourceConfig(path=Path("tasks.jsonl"))],
        steps=1,
        rollouts=RolloutConfig(max_staleness=max_staleness),
        optimizer=OptimizerConfig(precision="bfloat16"),
        cluster=ClusterConfig(max_model_len=64, **cluster),
    )


def override(config: TrainConfig, *, on_cpu: bool, address: str | None = None) -> dict[str, object]:
    return verl_overrides(config, Path("/runs/r"), num_groups=6, on_cpu=on_cpu, address=address)


@pytest.mark.parametrize(("on_cpu", "backend"), [(True, "agent_layer_files"), (False, "nccl")])
def test_separate_engines_have_gpus_of_their_own_and_get_weights_from_outside(*, on_cpu: bool, backend: str):
    config = configure(mode="separate_async", gpus_per_node=4, engine_gpus=2)

    found = override(config, on_cpu=on_cpu)

    assert count_gpus(config) == 6
    assert found["trainer.n_gpus_per_node"] == 4
    assert (found[f"{ROLLOUT}.nnodes"], found[f"{ROLLOUT}.n_gpus_per_node"]) == (1, 2)
    assert found[f"{ROLLOUT}.checkpoint_engine.backend"] == backend
    assert found["actor_rollout_ref.hybrid_engine"] is False
    assert (found.get(f"{ROLLOUT}.enable_chunked_prefill") is False) == on_cpu  # see agent_layer.local.vllm
    assert found["trainer.v1.trainer_mode"] == "agent_layer_separate_async"


def test_collocated_engines_share_the_gpus_of_the_trained_model():
    config = configure(gpus_per_node=4)

    assert count_gpus(config) == 4
    assert override(config, on_cpu=False)["trainer.v1.trainer_mode"] == "agent_layer_colocate_async"
    assert f"{ROLLOUT}.n_gpus_per_node" not in override(config, on_cpu=False)


def test_half_an_engine_is_refused():
    with pytest.raises(BadInputError, match=r"cluster\.engine_gpus 3.*multiple of tensor_parallel"):
        refuse_on_ray(configure(mode="separate_async", engine_gpus=3, tensor_parallel=2))
    refuse_on_ray(configure(mode="separate_async", engine_gpus=4, tensor_parallel=2))


@pytest.mark.parametrize("name", ["gspo", "gmpo"])
def test_a_ratio_of_an_earlier_epoch_trains_nothing(name: str):
    config = msgspec.structs.replace(configure(), algorithm=AlgorithmConfig(name=name))

    refuse_on_ray(config)
    with pytest.raises(BadInputError, match=r"optimizer\.epochs 2 with loss .*one epoch only"):
        refuse_on_ray(msgspec.structs.replace(config, optimizer=OptimizerConfig(epochs=2)))


def test_the_reference_has_the_precision_of_the_trained_model():
    found = override(configure(), on_cpu=False)

    trained, reference = (f"actor_rollout_ref.{one}.fsdp_config" for one in ("actor", "ref"))
    names = ("model_dtype", "mixed_precision")
    assert [found[f"{reference}.{name}"] for name in names] == [found[f"{trained}.{name}"] for name in names]
    assert found[f"{reference}.mixed_precision"] == {
        "param_dtype": "bf16",
        "reduce_dtype": "fp32",
        "buffer_dtype": "fp32",
    }


def test_servers_get_the_model_that_an_adapter_makes_and_no_adapter():
    config = msgspec.structs.replace(configure(), lora=LoraConfig(rank=4, alpha=8, target_modules=["q_proj"]))

    found = override(config, on_cpu=True)

    names = ("lora_rank", "lora_alpha", "target_modules", "lora.merge")
    assert [found[f"actor_rollout_ref.model.{name}"] for name in names] == [4, 8, ["q_proj"], True]
    assert "actor_rollout_ref.rollout.load_format" not in found
    refuse_on_ray(config)


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_servers_that_get_an_adapter_alone_read_its_base_themselves(mode: str):
    config = configure(max_staleness=int(mode != "sync"), mode=mode)
    config = msgspec.structs.replace(config, lora=LoraConfig(rank=4, publish="adapter"))

    found = override(config, on_cpu=True)

    assert found["actor_rollout_ref.model.lora.merge"] is False
    assert found["actor_rollout_ref.rollout.load_format"] == "auto"
    refuse_on_ray(config)


def test_verls_own_distillation_is_refused_in_favour_of_ours():
    with pytest.raises(BadInputError, match=r"cluster\.verl\.distillation\.enabled: .*set algorithm\.distill"):
        refuse_on_ray(configure(verl={"distillation.enabled": True}))


def reaches(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether servers of a process with these variables are reached from other machines."""
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return is_reached_from_other_machines()


@pytest.mark.parametrize("on_cpu", [True, False])
def test_a_cluster_is_joined_with_variables_for_processes_that_are_no_children_and_nothing_that_starts_ray(
    *, on_cpu: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AGENT_LAYER_API_KEY", "secret-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-2")
    config = configure(nodes=2, gpus_per_node=4)

    found = override(config, on_cpu=on_cpu, address="10.0.0.5:6379")

    ray = {name.removeprefix(INIT): value for name, value in found.items() if name.startswith(INIT)}
    assert ray.keys() == {"address", "runtime_env.env_vars"}
    variables = ray["runtime_env.env_vars"]
    assert isinstance(variables, dict)
    assert variables == make_environment(config, Path("/runs/r"), on_cpu=on_cpu, is_joined=True)
    assert variables[MARK] == "/runs/r"
    assert "secret" not in str(found)
    assert reaches(variables, monkeypatch)
    assert (found["trainer.nnodes"], found["trainer.n_gpus_per_node"]) == (2, 4)


def test_ray_of_one_machine_starts_with_servers_on_loopback(monkeypatch: pytest.MonkeyPatch):
    found = override(configure(), on_cpu=True)

    assert found[f"{INIT}_node_ip_address"] == "127.0.0.1"
    assert f"{INIT}address" not in found
    assert not reaches(make_environment(configure(), Path("/runs/r"), on_cpu=True), monkeypatch)


def test_an_engine_over_two_machines_is_refused():
    with pytest.raises(BadInputError, match=r"cluster\.tensor_parallel 4: .*has each engine on one machine"):
        refuse_on_ray(configure(nodes=2, gpus_per_node=2, tensor_parallel=4))
    refuse_on_ray(configure(nodes=2, gpus_per_node=4, tensor_parallel=4))
    refuse_on_ray(configure(nodes=2, gpus_per_node=2, tensor_parallel=4, engine_gpus=4, mode="separate_async"))


@pytest.mark.parametrize(("tool", "found"), [("auto", "hermes"), ("qwen3_coder", "qwen3_coder"), ("none", None)])
def test_verls_servers_have_the_parsers_of_the_models_family(tmp_path: Path, tool: str, found: str | None):
    (tmp_path / "chat_template.jinja").write_text("{%- if tools %}<tool_call>{%- endif %}")
    config = msgspec.structs.replace(configure(), model=tmp_path, tool_parser=tool)

    overrides = override(config, on_cpu=True)

    assert overrides.get(f"{ROLLOUT}.engine_kwargs.vllm.tool_call_parser") == found
    assert overrides.get(f"{ROLLOUT}.engine_kwargs.vllm.enable_auto_tool_choice") == (found and True)


@pytest.mark.parametrize(
    ("key", "engine"),
    [
        ("actor_rollout_ref.actor.strategy", "megatron"),
        ("actor_rollout_ref.actor.strategy", "fsdp"),
        ("actor_rollout_ref.ref.strategy", "megatron"),
        ("model_engine", "megatron"),
        ("model_engine", "veomni"),
    ],
)
def test_another_engine_than_fsdp2_is_refused_by_name(key: str, engine: str):
    with pytest.raises(BadInputError, match=rf"{key} {engine}: the driver on Ray trains with"):
        refuse_on_ray(configure(verl={key: engine}))
    refuse_on_ray(configure(verl={key: "dp" if key == "model_engine" else "fsdp2"}))


def test_rows_that_processes_share_are_told_to_both_models_and_have_no_padding(tmp_path: Path):
    sizes = {"num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 64}
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(sizes))

    def share(parts: int) -> TrainConfig:
        optimizer = OptimizerConfig(sequence_parallel=parts)
        return msgspec.structs.replace(configure(gpus_per_node=12), model=tmp_path, optimizer=optimizer)

    found = override(share(4), on_cpu=False)

    assert found["actor_rollout_ref.model.use_remove_padding"] is True
    for model in ("actor", "ref"):
        assert found[f"actor_rollout_ref.{model}.fsdp_config.ulysses_sequence_parallel_size"] == 4
    for parts in (1, 2, 4):
        refuse_on_ray(share(parts))
    for parts, named in ((5, "12 processes"), (3, "8 attention heads"), (12, "8 attention heads")):
        with pytest.raises(BadInputError, match=f"sequence_parallel {parts}: .*{named}"):
            refuse_on_ray(share(parts))
