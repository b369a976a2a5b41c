"""The batch of ``hand_case``, from records to the gradient: rows, advantages, loss and its norm.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

from itertools import product

import pytest

from trainer_adapter.algorithms import AlgorithmConfig, Schedule, resolve_algorithm
from trainer_adapter.config import OptimizerConfig, SourceConfig, TrainConfig

from .hand_case import BYPASS, DECOUPLED, NO_WEIGHTS, ROLLOUTS, expected_update, make_batch
from .plain_losses import LOSSES, MEANS

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

CASES = [
    pytest.param(loss, mean, correction, tokens, marks=() if (i + j) % 6 == k else pytest.mark.long)
    for i, loss in enumerate(LOSSES)
    for j, mean in enumerate(MEANS)
    for k, (correction, tokens) in enumerate(product(("decoupled", "bypass"), (1, 12, 16384)))
]
"""Loss, mean, correction and tokens of a micro-batch; those that are not long have each pair of two of them."""


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


@pytest.mark.parametrize(("loss", "mean", "correction", "microbatch_tokens"), CASES)
def test_loss_and_gradient_are_those_of_plain_autograd(model, reader, loss, mean, correction, microbatch_tokens):
    from trainer_adapter.verl.trainer import EmbeddedTrainer

    options = AlgorithmConfig(
        loss=loss,
        loss_mean=mean,
        loss_scale_factor=16.0 if mean == "seq-mean-token-sum-norm" else None,
        correction=BYPASS if correction == "bypass" else DECOUPLED,
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
