"""OpenEnv's training traces: what is trained of a trace is what is trained of the trajectory."""

import random

import msgspec
import pytest
from hypothesis import given

from agent_layer.errors import BadInputError
from trainer_adapter.data import samples_of
from trainer_adapter.foreign import make_trace, read_rows

from .step_trees import step_trees


def list_trained_tokens(rows):
    """Each trained token with all ids before it and its log-probability."""
    return sorted(
        ([*prompt, *response[:place]], response[place], logprobs[place])
        for prompt, response, logprobs, mask in rows
        for place in range(len(response))
        if mask[place]
    )


def make_rows(trajectory):
    return [
        (list(one.prompt_ids), list(one.response_ids), list(one.logprobs), list(one.loss_mask))
        for one in samples_of(trajectory).samples
    ]


@given(step_trees())
def test_a_trace_trains_the_same_tokens_behind_the_same_context(trajectory):
    trace = make_trace(trajectory)

    read = read_rows(msgspec.json.encode(trace))
    assert list_trained_tokens(read) == list_trained_tokens(make_rows(trajectory))
    assert len({turn.node_id for turn in trace.turns}) == len(trace.turns)


@given(step_trees())
def test_one_changed_id_is_another_trace(trajectory):
    trace = make_trace(trajectory)
    ids = [ids for turn in trace.turns for ids in (turn.prompt_token_ids, turn.completion_token_ids) if ids]
    if not ids:
        return
    changed = random.Random(len(ids)).choice(ids)  # any will do
    changed[-1] += 1000

    assert list_trained_tokens(read_rows(msgspec.json.encode(trace))) != list_trained_tokens(make_rows(trajectory))


TURN = {
    "node_id": "a",
    "prompt_token_ids": [1, 2],
    "completion_token_ids": [3],
    "per_token_logps": [-0.5],
    "loss_mask": [0, 0, 1],
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"loss_mask": [0, 1]}, "mask of 3, found 1 and 2"),
        ({"loss_mask": [0, 1, 1]}, "prompt that is not trained"),
        ({"per_token_logps": []}, "1 log-probabilities"),
        ({"prompt_token_ids": [], "loss_mask": [1]}, "expected a prompt"),
        ({"policy": 3}, "schema version 1"),
        ({"loss_mask": [0, 0, 2]}, "loss_mask"),
        ({"loss_mask": [0, 0, -1]}, "loss_mask"),
        ({"completion_token_ids": [-3]}, "completion_token_ids"),
        ({"per_token_logps": [0.5]}, "per_token_logps"),
        ({"node_id": ""}, "node_id"),
    ],
)
def test_a_turn_that_cannot_be_trained_exactly_is_refused(change, sentence):
    content = msgspec.json.encode({"schema_version": 1, "turns": [TURN | change]})
    with pytest.raises(BadInputError, match=sentence):
        read_rows(content)


def test_a_call_that_comes_twice_is_refused():
    with pytest.raises(BadInputError, match="2 turns, found 1 repeated"):
        read_rows(msgspec.json.encode({"schema_version": 1, "turns": [TURN, TURN]}))


def test_a_masked_call_is_context_only():
    masked = TURN | {"loss_mask": [0, 0, 0]}
    later = TURN | {"node_id": "b", "prompt_token_ids": [1, 2, 3, 9], "loss_mask": [0, 0, 0, 0, 1]}
    (row,) = read_rows(msgspec.json.encode({"schema_version": 1, "turns": [masked, later]}))
    assert row == ([1, 2], [3, 9, 3], [-0.5, 0.0, -0.5], [0, 0, 1])
