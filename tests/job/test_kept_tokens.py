"""A run keeps what each update computed: veRL's numbers, token by token, and the reason of each rollout left out.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import random

import pytest

from agent_layer.engines import read_fingerprints
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import StepRef, TrainingSample
from agent_layer.store import open_store
from agent_layer.store.consumers.trained_batches import list_batches
from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.algorithms.papers import ALGORITHMS
from trainer_adapter.data.advantages import TrainingBatch, advantage_rule, assign_credit, value_advantages
from trainer_adapter.data.credit import CreditRule, Turn
from trainer_adapter.data.replay import rebuild_batch

from .conftest import RUN, train

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

ESTIMATORS = ("grpo", "dr_grpo", "rloo", "reinforce++")
"""Algorithms, one for each way to compute advantages."""
GROUPS = [("g", 4), ("h", 7), ("equal", 3), ("lone", 1)]


def random_batch(credit):
    """Groups of rollouts with two turns of two tokens each, one of them of equal rewards, one with a single member."""
    dice = random.Random(f"{credit}")
    members = [(group_id, f"{group_id}.{member}-0") for group_id, size in GROUPS for member in range(size)]
    return TrainingBatch(
        group_ids=[group_id for group_id, _ in members],
        trajectory_ids=[trajectory_id for _, trajectory_id in members],
        rewards=[0.7 if group_id == "equal" else dice.choice([0.0, 0.7, 1.0, -3.0]) for group_id, _ in members],
        reward_ids=[[]] * len(members),
        samples=[two_turns(trajectory_id) for _, trajectory_id in members],
        rollout_of=list(range(len(members))),
        credit=credit,
        turns=[
            [Turn(call_id=name, agent="a", reward=0.0 if group_id == "equal" else dice.random()) for name in "xy"]
            for group_id, _ in members
        ]
        if credit == "turn"
        else [],
    )


def two_turns(trajectory_id):
    return TrainingSample(
        sample_id=f"{trajectory_id}.0",
        trajectory_id=trajectory_id,
        run="r",
        task_id="t",
        prompt_ids=TokenIds([1]),
        response_ids=TokenIds([2, 3, 4, 5, 6]),
        loss_mask=TokenIds([1, 1, 0, 1, 1]),
        logprobs=Logprobs([-0.5] * 5),
        versions=TokenIds([0, 0, -1, 0, 0]),
        steps=[
            StepRef(call_id="x", choice=0, start=0, num_tokens=2),
            StepRef(call_id="y", choice=0, start=3, num_tokens=2),
        ],
    )


@pytest.mark.parametrize(
    ("name", "credit"), [*((name, "rollout") for name in (None, *ALGORITHMS)), *((name, "turn") for name in ESTIMATORS)]
)
def test_the_advantages_that_replay_computes_are_those_of_verl(name, credit):
    from trainer_adapter.verl.tensors import pack_batch

    algorithm = resolve_algorithm(AlgorithmConfig(name=name, credit=credit))
    batch = random_batch(credit)

    judged = assign_credit(batch, CreditRule.of(algorithm))
    values = value_advantages(judged, advantage_rule(algorithm))
    rows = pack_batch(batch, algorithm)["advantages"].tolist()

    for row, sample, spans in zip(rows, batch.samples, judged.spans, strict=True):
        for start, size, value in spans:
            expected = [values[value] * trained for trained in sample.loss_mask[start : start + size]]
            assert row[start : start + size] == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.usefixtures("engine")
def test_a_run_keeps_what_each_update_computed_or_why_it_learned_nothing(configure, settings, player, model):
    own = {"tokenizer_hash": read_fingerprints(str(model)).tokenizer_hash}
    player.spoil = lambda lease: own | ({"temperature": 0.0} if lease.rollout_id.endswith(".2") else {})
    from trainer_adapter.demo.model import NUMBERS, SPECIAL, WORDS

    store = open_store(settings)

    train(configure(2, health={"untrainable": "off", "importance_tail": "off", "logprob_gap": "off"}), settings)

    replays = [rebuild_batch(record, store.get) for record in list_batches(store.redis, store.keys, RUN)]
    assert [(replay.differences, replay.has_tokens) for replay in replays] == [([], True)] * 2
    first, _ = replays
    found = [store.get(one.trajectory_id) for one in first.record.rollouts]
    expected = [first_logprob(model, 12 + int(one.started.rollout_id.rpartition(".")[2])) for one in found]
    assert [one.trained[0].logprobs[0] for one in found] == pytest.approx(expected, abs=1e-4)
    assert {one.trained[0].advantages[0] for one in found} == {0.5, -0.5}
    tokens = store.step_tokens(found[0], 0)
    assert (tokens.texts, tokens.mask) == ([(SPECIAL + WORDS + NUMBERS)[tokens.token_ids[0]].encode()], b"\x01")
    trajectories = [store.get(row.trajectory_id) for row in store.scan(run=RUN)]
    reasons = {one.trajectory_id: one.exclusions[0].kind for one in trajectories if one.exclusions}
    assert set(reasons.values()) == {"greedy"}
    assert len(reasons) == 4
    assert {row.trajectory_id for row in store.query(run=RUN, finding="greedy").items} == set(reasons)


def first_logprob(model, token):
    """Of a token behind the prompt of the player's rollouts."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(model).eval()(torch.tensor([[3]])).logits[0, -1]
    return float(logits.log_softmax(-1)[token])
