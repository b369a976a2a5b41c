"""Parts of the driver on Ray, without Ray: rows, the weights' hash, versions that veRL sends, the schedule of rates.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import os
import subprocess
import sys
import threading
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import msgspec
import pytest

from agent_layer.engines import get_policy
from agent_layer.recorder import open_recorder
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import TrainingSample

from ..waiting import join

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other


@pytest.fixture(scope="module")
def weights():
    """A tensor and another."""
    import torch

    return torch.arange(6.0).reshape(2, 3), torch.tensor(1.0, dtype=torch.bfloat16)


def test_order_and_layout_of_the_same_weights_do_not_change_their_hash(weights):
    from trainer_adapter.cluster.weights.digest import hash_weights

    one, other = weights
    transposed = one.t().contiguous().t()

    assert not transposed.is_contiguous()
    assert hash_weights([("other", other), ("one", transposed)]) == hash_weights([("one", one), ("other", other)])


def test_a_bit_a_shape_a_type_a_name_or_a_missing_tensor_change_the_hash(weights):
    import torch

    from trainer_adapter.cluster.weights.digest import hash_weights

    one, other = weights
    changed = (
        [("one", one)],
        [("one", torch.nextafter(one, torch.tensor(9.0))), ("other", other)],
        [("one", one.reshape(3, 2)), ("other", other)],
        [("one", one), ("other", other.to(torch.float16))],
        [("another", one), ("other", other)],
    )

    assert hash_weights([("one", one), ("other", other)]) not in [hash_weights(tensors) for tensors in changed]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_version_whose_weights_verl_sends_is_registered_with_their_hash_if_it_is_known(
    settings, redis, keys, tmp_path, weights, is_known
):
    from trainer_adapter.cluster.bridge import Bridge, RunEnded
    from trainer_adapter.cluster.publisher import ClusterPublisher
    from trainer_adapter.cluster.weights.digest import hash_weights
    from trainer_adapter.cluster.weights.fleet import EngineFleet
    from trainer_adapter.verl import PublishedWeights

    bridge, threads = Bridge(), list[str]()
    known = hash_weights([("one", weights[0])]) if is_known else None

    def hash_of_trained_weights():
        threads.append(threading.current_thread().name)
        return known

    def answer():
        with suppress(RunEnded):
            bridge.run_actions(until=lambda: False)

    verl = threading.Thread(target=answer, name="veRL's")
    verl.start()
    fleet = EngineFleet(settings, "r", redis, tmp_path, {}, lambda _: [])
    publisher = ClusterPublisher(settings, "r", redis, open_recorder(settings), bridge, fleet, hash_of_trained_weights)
    publisher.register_base(tmp_path)

    number = publisher.publish(PublishedWeights([], None), tmp_path, training_step=1)

    bridge.end()
    join(verl)
    assert (number, threads) == (1, ["veRL's"]), "all that veRL's workers do begins in its thread"
    assert get_policy(redis, keys, "r", 1).weights_hash == known


def test_every_optimizer_step_of_an_update_has_the_rate_of_the_schedule():
    import torch
    from verl.utils.torch_functional import get_constant_schedule_with_warmup

    from trainer_adapter.cluster.worker import hold_rate

    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=1e-3)
    scheduler = get_constant_schedule_with_warmup(optimizer=optimizer, num_warmup_steps=0)
    rates: list[float] = []

    for rate in (5e-4, 1e-4):
        hold_rate(optimizer, scheduler, rate)
        for _ in range(2):  # veRL moves its scheduler after each call, and ours make one optimizer step
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()  # pyright: ignore[reportUnknownMemberType]  # untyped in torch
            scheduler.step()

    assert rates == pytest.approx([5e-4, 5e-4, 1e-4, 1e-4])


def test_routes_of_a_sample_are_a_field_of_its_row_on_ray():
    import numpy as np

    from trainer_adapter.cluster.rows import _fields, _SamplePosition

    sample = TrainingSample(
        sample_id="s",
        trajectory_id="t",
        run="r",
        task_id="q",
        prompt_ids=TokenIds([3, 12]),
        response_ids=TokenIds([13, 14, 15]),
        loss_mask=TokenIds([1, 0, 1]),
        logprobs=Logprobs([-3.0, 0.0, -3.0]),
        versions=TokenIds([0, -1, 0]),
        temperature=1.0,
    )
    length, content = len(sample.prompt_ids) + len(sample.response_ids), BytesIO()
    routes = np.arange(2 * 3 * length, dtype=np.int16).reshape(length, 2, 3)
    np.save(content, routes)

    row = _fields(msgspec.structs.replace(sample, routed_experts=content.getvalue()), _SamplePosition("s", 0, 0), 1.0)

    assert row["routed_experts"].tolist() == routes.tolist()
    assert len(row["routed_experts"]) == len(row["input_ids"])
    assert "routed_experts" not in _fields(sample, _SamplePosition("s", 0, 0), 1.0)


@pytest.mark.long  # veRL's trainer takes many seconds to import
def test_with_the_settings_of_a_users_main_ppo_verl_opens_one_prompt_in_place_of_a_useless_group():
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer")
    OmegaConf.set_struct(config, value=False)
    page = OmegaConf.load(Path(__file__).parents[2] / "examples" / "other_trainers" / "verl.yaml")
    del page["defaults"]
    slots = {"path": "pkg://trainer_adapter.cluster.rows", "name": "SlotDataset"}
    config = OmegaConf.merge(config, page, {"data": {"custom_cls": slots, "num_steps": 2}})
    trainer = PPOTrainerSync.__new__(PPOTrainerSync)
    vars(trainer).update(
        config=config, trainer_mode="sync", tokenizer=None, processor=None, global_steps=1, parameter_sync_step=1
    )
    trainer._init_dataloader()

    assert len(trainer._next_train_batch()) == 16
    assert len(trainer._next_train_batch(1)) == 1


@pytest.mark.long  # imports Ray and veRL in a process of its own
def test_the_plug_in_leaves_the_interface_of_gloo_alone_in_a_process_that_is_not_on_ray():
    program = "import trainer_adapter.cluster.plugin, os; print(os.environ.get('GLOO_SOCKET_IFNAME'))"
    variables = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}

    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=variables | {"AGENT_LAYER_RAY_LISTEN": "machine"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stdout.split() == ["None"]
