"""The hash by which veRL's servers confirm the weights that arrived, and which their version has."""
# ruff: noqa: PLC0415  # veRL takes seconds to import, and collection stays fast

import threading
from contextlib import suppress

import pytest
import torch

from agent_layer.engines import get_policy
from agent_layer.recorder import open_recorder
from trainer_adapter.cluster.weights import EngineFleet, hash_weights

ONE, OTHER = torch.arange(6.0).reshape(2, 3), torch.tensor(1.0, dtype=torch.bfloat16)


def test_order_and_layout_of_the_same_weights_do_not_change_their_hash():
    transposed = ONE.t().contiguous().t()

    assert not transposed.is_contiguous()
    assert hash_weights([("other", OTHER), ("one", transposed)]) == hash_weights([("one", ONE), ("other", OTHER)])


def test_a_bit_a_shape_a_type_a_name_or_a_missing_tensor_change_the_hash():
    others = (
        [("one", ONE)],
        [("one", torch.nextafter(ONE, torch.tensor(9.0))), ("other", OTHER)],
        [("one", ONE.reshape(3, 2)), ("other", OTHER)],
        [("one", ONE), ("other", OTHER.to(torch.float16))],
        [("another", ONE), ("other", OTHER)],
    )

    assert hash_weights([("one", ONE), ("other", OTHER)]) not in [hash_weights(weights) for weights in others]


@pytest.mark.timeout(600)  # ray and veRL take two minutes to import on a busy machine that never did
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("known", [hash_weights([("one", ONE)]), None])
def test_a_version_whose_weights_verl_sends_is_registered_with_their_hash_if_it_is_known(
    settings, redis, keys, tmp_path, known
):
    from trainer_adapter.cluster.bridge import Bridge, RunEnded
    from trainer_adapter.cluster.publisher import ClusterPublisher
    from trainer_adapter.verl import PublishedWeights

    bridge, threads = Bridge(), list[str]()

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
    verl.join(60)
    assert (number, threads) == (1, ["veRL's"]), "all that veRL's workers do begins in its thread"
    assert get_policy(redis, keys, "r", 1).weights_hash == known
