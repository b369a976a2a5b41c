"""Routed experts of a row: each token has the route by which it was first computed."""

from io import BytesIO

import msgspec
import numpy as np
import pytest

from agent_layer.schema import LengthRule
from agent_layer.schema.codec import encode
from trainer_adapter.data.lengths import fit_rows
from trainer_adapter.data.samples import samples_of

from .step_trees import call, make_trajectory


def npy(first, length, kind="uint8"):
    """Routes first, first + 1, … of ``length`` tokens: two layers, one expert each."""
    content = BytesIO()
    np.save(content, (np.arange(first, first + length)[:, None, None] + [[[0], [100]]]).astype(kind))
    return content.getvalue()


def routed(part, arrays):
    """The call, with arrays of the engine in its answer."""
    (action,) = part.actions
    return msgspec.structs.replace(part, actions=[msgspec.structs.replace(action, arrays=arrays)])


def chain(second):
    """Prompt 1 2, answer 3 4, tool 5, answer 6: a row of six tokens."""
    first = routed(call("a", [[3, 4]], [1, 2]), {"routed_experts": npy(10, 3)})
    return make_trajectory(first, routed(call("b", [[6]], [5], at=2.0, parent=("a", 0), prefix_length=4), second))


def read_routes(sample):
    assert sample.routed_experts is not None
    found = np.load(BytesIO(sample.routed_experts))
    assert found.dtype == np.int16
    assert (found[:, 1] - found[:, 0] == np.where(found[:, :1, 0] > 0, 100, 0)).all(), "layers stay apart"
    return found[:, 0, 0].tolist()


@pytest.mark.parametrize("begin", [0, 3], ids=["whole prompts", "from the first new token"])
def test_a_token_keeps_the_route_by_which_it_was_first_computed(begin):
    (sample,) = samples_of(chain({"routed_experts": npy(20 + begin, 5 - begin, "int32")})).samples

    assert read_routes(sample) == [10, 11, 12, 23, 24, 0], "the last token was never computed"


@pytest.mark.parametrize(
    "second", [{}, {"routed_experts": npy(20, 1)}], ids=["a call without them", "a gap between calls"]
)
def test_a_row_whose_routes_are_not_all_known_has_none(second):
    (sample,) = samples_of(chain(second)).samples

    assert sample.routed_experts is None


def test_a_cut_row_has_the_routes_of_its_tokens():
    trajectory = chain({"routed_experts": npy(20, 5)})

    fitted = fit_rows(trajectory, samples_of(trajectory), LengthRule(max_row_tokens=4, long_rows="cut_end"))

    assert read_routes(fitted.samples[0]) == [10, 11, 12, 23]


def test_rows_without_routes_are_encoded_as_before():
    (sample,) = samples_of(chain({})).samples

    assert "routed_experts" not in encode(sample).decode(errors="replace")
