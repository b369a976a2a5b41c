"""GPUs of a run on Ray: what is on which, against numbers worked out by hand."""

from pathlib import Path

from trainer_adapter.config import ClusterConfig, OptimizerConfig, RolloutConfig, SourceConfig, TrainConfig
from trainer_adapter.start.memory import ModelShape, sum_bytes
from trainer_adapter.start.ray_gpus import FoundGpus, GpuPlan, find_gpu_faults, plan_gpus, write_gpus

GB = 10**9
# 1,000 x 1,000,000 words twice, and two layers
SHAPE = ModelShape(
    vocab_size=1_000_000,
    hidden_size=1_000,
    intermediate_size=4_000,
    num_hidden_layers=2,
    num_attention_heads=10,
    num_key_value_heads=2,
)
LAYER = 2 * 1_000 * 1_000 + 2 * 1_000 * 200 + 3 * 1_000 * 4_000 + 2 * 1_000
TOTAL = 2 * 1_000_000 * 1_000 + 2 * LAYER + 1_000


def plan(
    *, gigabytes: int | None = 80, num_found: int | None = 4, microbatch_tokens: int = 100, **cluster: object
) -> GpuPlan:
    config = TrainConfig(
        model=Path("m"),
        tasks=[SourceConfig(path=Path("t"))],
        steps=1,
        rollouts=RolloutConfig(group_size=8, max_staleness=2),
        optimizer=OptimizerConfig(precision="bfloat16", microbatch_tokens=microbatch_tokens),
        cluster=ClusterConfig(**cluster),
    )
    found = FoundGpus(num_found, None if gigabytes is None else gigabytes * GB)
    return plan_gpus(config, SHAPE, found, num_groups=16, context=1_000, bucket_megabytes=100)


def sizes(parts):
    return {part.name: part.num_bytes for part in parts}


def test_states_are_shared_and_a_collocated_engine_takes_its_share_beside_them():
    found = plan(gpus_per_node=4, tensor_parallel=2, engine_memory=0.25)

    states = {"weights": TOTAL, "gradients": TOTAL, "Adam": 2 * TOTAL}  # 4 B each, a quarter on each of 4 GPUs
    assert sizes(found.sampling) == {**states, "engine": 20 * GB}
    assert sizes(found.sending) == {
        **states,
        "largest tensor": 4 * GB,  # float32 on the wire
        "bucket": 100 * 2**20,
        "engine's weights": TOTAL,  # 2 B each, one half on each of 2 GPUs
    }
    assert (found.num_all, found.num_engines, found.rollouts_begun) == (4, 2, 16 * 8 * 3)
    assert find_gpu_faults(found) == []


def test_what_is_left_of_an_engine_keeps_tokens():
    found = plan(gpus_per_node=4, engine_memory=0.25)

    token = 2 * 2 * 200 * 2
    assert found.engine.cache_token.num_bytes == token
    assert found.engine.num_cached_tokens == (20 * GB - 2 * TOTAL) // token
    assert found.rollouts_at_full_length == 4 * ((20 * GB - 2 * TOTAL) // token // 1_000)


def test_separate_engines_take_nothing_of_the_gpus_that_train():
    found = plan(mode="separate_async", gpus_per_node=2, engine_gpus=2, tensor_parallel=2, engine_memory=0.9)

    assert {"engine", "engine's weights"}.isdisjoint({**sizes(found.sampling), **sizes(found.sending)})
    assert sizes(found.sending)["buckets"] == 2 * 100 * 2**20, "one is filled while the other is sent"
    assert (found.num_all, found.num_engines) == (4, 1)
    assert "2 share the trained model; 1 engine, 2 GPUs for each, beside them" in "\n".join(write_gpus(found))


def test_what_does_not_fit_is_named_with_what_to_do():
    faults = find_gpu_faults(plan(num_found=1, gpus_per_node=1, engine_memory=0.95, microbatch_tokens=2_000_000))

    assert [fault.split(";")[0].split(",")[0] for fault in faults] == [
        "memory: expected an update within 80.0 GB of a GPU",
        "memory: expected engine and states of the trainer within 80.0 GB of a GPU",
    ]
    assert "lower cluster.engine_memory" in faults[1]


def test_too_few_gpus_and_an_engine_without_room_for_one_rollout_are_named():
    few, small = find_gpu_faults(plan(gigabytes=20, num_found=1, gpus_per_node=4, engine_memory=0.2))

    assert few == "cluster: expected 4 GPUs on this machine for trainer and engines, found 1"
    assert small.startswith("memory: expected an engine that keeps 1,000 tokens, found 0; raise cluster.engine_memory")


def test_gpus_of_a_cluster_are_not_looked_for_on_this_machine():
    found = plan(num_found=None, gpus_per_node=8, nodes=2, mode="separate_async", engine_gpus=6, tensor_parallel=2)

    assert (found.num_trainer, found.num_engine, found.num_all, found.num_engines) == (16, 6, 22, 3)
    assert find_gpu_faults(found) == []
    assert next(iter(write_gpus(found))) == "GPUs: 22, 80.0 GB each; in a Ray cluster"


def test_a_gpu_whose_memory_is_not_known_is_not_judged():
    found = plan(gigabytes=None, gpus_per_node=4)

    assert find_gpu_faults(found) == []
    assert found.rollouts_at_full_length is None
    assert "memory not known" in next(iter(write_gpus(found)))
    assert sum_bytes(found.sampling) == 4 * TOTAL
