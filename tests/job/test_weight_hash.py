"""The hash by which veRL's servers confirm the weights that arrived."""

import torch

from trainer_adapter.cluster.weights import hash_weights

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
