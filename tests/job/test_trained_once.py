"""Every sampled token is trained exactly once, as the model's gradients see it: random rollouts, in packed rows.

Rewards of a group are drawn from numbers whose means are none of them, so each rollout that may teach has an advantage.
torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

from collections import Counter
from statistics import fmean

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from agent_layer.schema.reward import Reward
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.consumers.follower import GroupDelivery
from trainer_adapter.algorithms import AlgorithmConfig
from trainer_adapter.algorithms.options import CorrectionConfig
from trainer_adapter.config import OptimizerConfig, Schedule, SourceConfig, TrainConfig
from trainer_adapter.data.advantages import select_batch
from trainer_adapter.data.groups import read_group

from ..builders import closed_group
from ..profiles import num_examples
from ..unit.trainer.step_trees import STARTED, step_trees

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

NEWEST = 3
"""Version that trains; those that sampled are at most as new."""


@st.composite
def groups(draw):
    """Some groups of trajectories: trees of calls at several temperatures and versions, some without a reward."""
    found = []
    for group_id in draw(st.sampled_from(["g", "gh", "ghi"])):
        members = []
        for number in range(draw(st.integers(2, 4))):
            name = f"{group_id}.{number}-0"
            own = {"trajectory_id": name}
            records = [msgspec.structs.replace(one, **own) for one in draw(step_trees(as_records=True))]
            score = draw(st.sampled_from([None, 0.0, 1.0, 10.0]))
            if score is not None:
                records.append(Reward(**own, run="r", reward_id=f"{name}/r", at=99.0, score=score))
            started = msgspec.structs.replace(STARTED, **own, rollout_id=name[:-2], group_id=group_id)
            members.append(assemble_trajectory(name, [started, *records]))
        found.append((group_id, members))
    return found


def list_sampled(members):
    """What a group should teach: a context, the token that was sampled there, its temperature and its advantage."""
    scores = [one.reward for one in members if one.reward is not None]
    if len(set(scores)) < 2:
        return []
    return [
        ((*step.prompt_token_ids, *ids[: place + 1]), step.temperature, round(one.reward - fmean(scores), 3))
        for one in members
        if one.reward is not None
        for step in one.steps
        if step.role == "policy" and step.status == "ok"
        for ids in [tuple(step.action.response_token_ids)]
        for place in range(len(ids))
    ]


@pytest.fixture(scope="module")
def trainer(chat_model):
    from trainer_adapter.verl import EmbeddedTrainer

    return EmbeddedTrainer(
        TrainConfig(
            model=chat_model,
            tasks=[SourceConfig(path=chat_model / "none.jsonl")],
            steps=1,
            algorithm=AlgorithmConfig(correction=CorrectionConfig(weights=None)),
            optimizer=OptimizerConfig(learning_rate=Schedule(start=0.0)),
        )
    )


@pytest.fixture(scope="module")
def trained(trainer):
    """The (context and token, temperature, gradient) of each place of a packed row with a gradient, by minibatch."""
    from trainer_adapter.verl.packed import engine as packed, logprobs

    inner, score_tokens, prepare = (
        trainer._worker.engine,
        logprobs.score_tokens,
        packed.PackedEngine.prepare_model_inputs,
    )
    make_step, steps, rows = inner.optimizer_step, [[]], []

    def see_inputs(engine, micro_batch):
        rows[:] = [one.tolist() for one in micro_batch["input_ids"].unbind()]
        return prepare(engine, micro_batch)

    def see_scores(hidden, weight, bias, scored, rule):
        found, entropy = score_tokens(hidden, weight, bias, scored, rule)
        if found.requires_grad:
            contexts = [tuple(row[: place + 1]) for row in rows for place in range(len(row))]
            tokens, temperatures = scored.next_ids.tolist(), scored.temperature.tolist()

            def see_gradient(gradient):
                seen = zip(contexts, tokens, temperatures, gradient.tolist(), strict=True)
                steps[-1] += [((*context, token), heat, slope) for context, token, heat, slope in seen if slope]

            found.register_hook(see_gradient)
        return found, entropy

    def end_step():
        steps.append([])
        return make_step()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logprobs, "score_tokens", see_scores)
        patch.setattr(packed.PackedEngine, "prepare_model_inputs", see_inputs)
        patch.setattr(inner, "optimizer_step", end_step)
        yield steps


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=num_examples(60)
)
@given(groups(), st.integers(1, 3), st.integers(1, 2), st.sampled_from([1, 30, 16384]))
def test_every_sampled_token_is_trained_once_in_its_own_context(
    trainer, trained, found, minibatches, epochs, microbatch_tokens
):
    read = [
        read_group(
            GroupDelivery(
                closed_group(name, *(one.trajectory_id for one in members), group_size=len(members)),
                members,
                lambda: None,
            ),
            NEWEST,
            NEWEST,
        )
        for name, members in found
    ]
    batch = select_batch([one.samples for one in read if not one.is_void], keep_equal=False)
    expected = Counter(one for _, members in found for one in list_sampled(members))
    if not batch.samples:
        assert not expected
        return
    optimizer = msgspec.structs.replace(
        trainer._config.optimizer, minibatches=minibatches, epochs=epochs, microbatch_tokens=microbatch_tokens
    )
    trainer._config = msgspec.structs.replace(trainer._config, optimizer=optimizer)
    trained[:] = [[]]

    trainer.update(batch, 0, version=NEWEST)

    seen = Counter(
        (token, round(heat, 3), round(-slope * len(minibatch), 3))
        for minibatch in trained
        for token, heat, slope in minibatch
    )
    assert seen == Counter({one: epochs * number for one, number in expected.items()})
