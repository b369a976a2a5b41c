"""One batch written by hand, from records to the gradient: rows, advantages, loss and its norm.

Three groups with rewards (1, 0, null, 0.5), three times 0.25, and (null, 2, -1), and one with a lone reward: a tool
between turns, a fork, an aborted step, two agents, best of two, two temperatures in one chain, two versions. Loss and
gradient are compared with plain autograd over the Hugging Face model.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import random

import pytest

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.consumers.follower import GroupDelivery
from trainer_adapter.algorithms import AlgorithmConfig, CorrectionConfig, resolve_algorithm
from trainer_adapter.config import OptimizerConfig, SourceConfig, TrainConfig
from trainer_adapter.data.advantages import select_batch
from trainer_adapter.data.groups import read_group
from trainer_adapter.schedule import Schedule

from ..builders import attempt, closed_group
from .plain_losses import LOSSES, MEANS, PlainRollout, plain_loss

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(300),
]

MICROBATCH_TOKENS = (1, 12, 16384)


def engine_logprobs(ids):
    """What the engine says of these tokens; near the probability of any token in the untrained model."""
    return [-3.0 + random.Random(f"{token} {place}").uniform(-0.4, 0.4) for place, token in enumerate(ids)]


def said(trajectory_id, name, *answers, after=None, delta=(3, 12), at=1.0, **fields):
    """A call of the policy; ``after`` is (call, choice, tokens before) that its prompt continues."""
    version, status = fields.pop("version", 1), fields.pop("status", "ok")
    actions = [
        Action(
            response_token_ids=TokenIds(ids),
            logprobs=Logprobs(engine_logprobs(ids)),
            policy_versions=[(version, len(ids))],
        )
        for ids in answers
    ]
    parent, choice, length = after or (None, 0, 0)
    return StepPart(
        trajectory_id=trajectory_id,
        run="r",
        call_id=name,
        source="gateway",
        phase="end",
        at=at,
        prompt=PromptDelta(delta=TokenIds(delta), parent_call=parent, parent_choice=choice, prefix_length=length),
        actions=actions,
        status=status,
        capture_level="tokens",
        logprobs_mode="processed",
        **{"temperature": 1.0} | fields,
    )


def with_a_tool(name):
    return [
        said(name, "a", [13, 14], version=0),
        said(name, "b", [15], after=("a", 0, 4), delta=[4, 5], at=2.0),
    ]


def with_a_fork(name):
    return [
        said(name, "a", [13]),
        said(name, "b", [16, 17], after=("a", 0, 3), delta=[4], at=2.0),
        said(name, "c", [18], after=("a", 0, 3), delta=[5, 6], at=3.0),
    ]


def with_an_aborted_step(name):
    return [said(name, "a", [13, 14], status="aborted"), said(name, "b", [19, 20, 13], at=2.0)]


def with_two_agents(name):
    return [
        said(name, "a", [12, 13], agent="solver"),
        said(name, "b", [14], delta=[7, 8, 9], agent="critic", at=2.0),
    ]


def with_best_of_two_at_two_temperatures(name):
    return [
        said(name, "a", [15, 16], [17]),
        said(name, "b", [18, 19], after=("a", 0, 4), delta=[5], temperature=0.5, version=0, at=2.0),
    ]


def plain(name):
    return [said(name, "a", [13])]


GROUPS = {
    "one": [(1.0, with_a_tool), (0.0, with_a_fork), (None, plain), (0.5, with_an_aborted_step)],
    "equal": [(0.25, plain)] * 3,
    "two": [(None, plain), (2.0, with_two_agents), (-1.0, with_best_of_two_at_two_temperatures)],
    "lone": [(3.0, plain), (None, plain)],
}

ROLLOUTS = [
    # advantage, then (prompt, response, mask, temperature) of each row
    (0.5, [([3, 12], [13, 14, 4, 5, 15], [1, 1, 0, 0, 1], 1.0)]),
    (-0.5, [([3, 12], [13, 4, 16, 17], [1, 0, 1, 1], 1.0), ([3, 12], [13, 5, 6, 18], [0, 0, 0, 1], 1.0)]),
    (0.0, [([3, 12], [19, 20, 13], [1, 1, 1], 1.0)]),
    (1.5, [([3, 12], [12, 13], [1, 1], 1.0), ([7, 8, 9], [14], [1], 1.0)]),
    (
        -1.5,
        [
            ([3, 12], [15, 16], [1, 1], 1.0),
            ([3, 12], [15, 16, 5, 18, 19], [0, 0, 0, 1, 1], 0.5),
            ([3, 12], [17], [1], 1.0),
        ],
    ),
]


def make_batch():
    read = []
    for group_id, members in GROUPS.items():
        names = [f"{group_id}.{number}-0" for number in range(len(members))]
        trajectories = [
            assemble_trajectory(name, attempt(name, *calls(name), score=score, group_id=group_id))
            for name, (score, calls) in zip(names, members, strict=True)
        ]
        group = closed_group(group_id, *names, group_size=len(names))
        read.append(read_group(GroupDelivery(group, trajectories, lambda: None), 1, 1))
    return select_batch([one.samples for one in read], keep_equal=False)


def test_rows_are_those_written_by_hand():
    batch = make_batch()

    found = [
        (list(one.prompt_ids), list(one.response_ids), list(one.loss_mask), one.temperature) for one in batch.samples
    ]
    by_rollout = [[row for row, owner in zip(found, batch.rollout_of, strict=True) if owner == k] for k in range(5)]
    assert [sorted(rows) for rows in by_rollout] == [sorted(rows) for _, rows in ROLLOUTS]
    assert batch.rewards == [1.0, 0.0, 0.5, 2.0, -1.0]
    assert {version for one in batch.samples for version in one.versions} == {-1, 0, 1}


@pytest.mark.parametrize(
    ("scale_by_std", "expected"),
    [(False, [0.5, -0.5, 0.0, 1.5, -1.5]), (True, [1.0, -1.0, 0.0, 0.5**0.5, -(0.5**0.5)])],
)
def test_advantages_are_those_worked_out_by_hand(scale_by_std, expected):
    from trainer_adapter.verl.tensors import pack_batch

    batch = make_batch()
    rows = pack_batch(batch, resolve_algorithm(AlgorithmConfig(scale_by_std=scale_by_std)))

    for row, owner in enumerate(batch.rollout_of):
        mask = rows["response_mask"][row]
        assert rows["advantages"][row].tolist() == pytest.approx((expected[owner] * mask).tolist(), abs=1e-5)


@pytest.fixture(scope="module")
def reader(model):
    """The Hugging Face model with the trainer's first weights."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model).eval()


def logprobs_of(reader, rows):
    """Log-probabilities of the trained tokens of these rows under the model, at the rows' temperatures."""
    import torch

    found = []
    for prompt, response, mask, temperature in rows:
        logits = reader(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1] / temperature
        chosen = logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]
        found.append(chosen[torch.tensor(mask).bool()])
    return torch.cat(found)


def engine_of(rows):
    """What the engine said of the trained tokens of these rows, answer by answer."""
    import torch

    found = []
    for _, response, mask, _ in rows:
        answer = []
        for token, is_trained in zip([*response, None], [*mask, 0], strict=True):
            if is_trained:
                answer.append(token)
            else:
                found += engine_logprobs(answer)
                answer = []
    return torch.tensor(found)


def expected_update(reader, algorithm, before=None):
    """Loss and norm of its gradient by plain autograd; ``before`` has the weights before the update, if others."""
    import torch

    correction, rollouts = algorithm.correction, []
    reader.zero_grad()
    for advantage, rows in ROLLOUTS:
        new, engine = logprobs_of(reader, rows), engine_of(rows)
        is_weighted = correction.weights and (not correction.bypass or algorithm.loss == "reinforce")
        ratios = torch.exp(new.detach() - engine).clamp(max=correction.upper)
        weights = ratios if is_weighted else torch.ones(len(new))
        old = engine if correction.bypass else logprobs_of(before or reader, rows).detach()
        rollouts.append(PlainRollout(new, old, torch.full((len(new),), advantage), weights))
    loss = plain_loss(rollouts, algorithm)
    loss.backward()
    return loss.item(), torch.stack([one.grad.norm() for one in reader.parameters()]).norm().item()


DECOUPLED = CorrectionConfig()
NO_WEIGHTS = CorrectionConfig(weights=None)
"""For ``geo_mean``, whose weights act by their geometric mean."""
BYPASS = CorrectionConfig(bypass=True)
"""The ratio is that of trainer and engine, so it is not 1 in the first minibatch."""


@pytest.mark.parametrize("microbatch_tokens", MICROBATCH_TOKENS)
@pytest.mark.parametrize("correction", ["decoupled", "bypass"])
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_gradient_are_those_of_plain_autograd(model, reader, loss, mean, correction, microbatch_tokens):
    from trainer_adapter.verl.trainer import EmbeddedTrainer

    decoupled = NO_WEIGHTS if loss == "geo_mean" else DECOUPLED
    options = AlgorithmConfig(
        loss=loss,
        loss_mean=mean,
        loss_scale_factor=16.0 if mean == "seq-mean-token-sum-norm" else None,
        correction=BYPASS if correction == "bypass" else decoupled,
    )
    config = TrainConfig(
        model=model,
        tasks=[SourceConfig(path=model / "none.jsonl")],
        steps=1,
        algorithm=options,
        optimizer=OptimizerConfig(learning_rate=Schedule(start=0.0), microbatch_tokens=microbatch_tokens),
    )
    expected, norm = expected_update(reader, resolve_algorithm(options))

    report = EmbeddedTrainer(config).update(make_batch(), 0, version=1)

    assert report.metrics["actor/pg_loss"] == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert report.metrics["grad_norm"] == pytest.approx(norm, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "gspo", "correction": NO_WEIGHTS, "clip_low": 0.1, "clip_high": 0.1},
        {"name": "gmpo", "correction": NO_WEIGHTS},
        {"loss": "reinforce", "loss_mean": "seq-mean-token-sum", "correction": BYPASS},
    ],
)
def test_a_later_minibatch_takes_a_whole_rollouts_ratio_under_the_weights_before_it(model, reader, options):
    from transformers import AutoModelForCausalLM

    from trainer_adapter.verl.trainer import EmbeddedTrainer

    def train(epochs):
        config = TrainConfig(
            model=model,
            tasks=[SourceConfig(path=model / "none.jsonl")],
            steps=1,
            algorithm=AlgorithmConfig(scale_by_std=False, **options),
            optimizer=OptimizerConfig(learning_rate=Schedule(start=1e-3), epochs=epochs, microbatch_tokens=1),
        )
        trainer = EmbeddedTrainer(config)
        return trainer, trainer.update(make_batch(), 0, version=1).metrics["actor/pg_loss"]

    (once, first), (_, mean) = train(1), train(2)
    moved = AutoModelForCausalLM.from_pretrained(model).eval()
    moved.load_state_dict(dict(once.weights()))
    algorithm = resolve_algorithm(AlgorithmConfig(scale_by_std=False, **options))
    expected, _ = expected_update(moved, algorithm, before=reader)

    assert abs(expected - first) > 1e-3, "the first minibatch moved the weights"
    assert 2 * mean - first == pytest.approx(expected, rel=1e-5, abs=1e-5)
