"""One real veRL update on a CPU: it agrees with the sampler, follows the reward, packs forks and resumes exactly.

torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import random

import pytest

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import TrainingSample
from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.algorithms.options import CorrectionConfig, RejectionRule
from trainer_adapter.config import OptimizerConfig, Schedule, SourceConfig, TrainConfig
from trainer_adapter.data.advantages import GroupSamples, RolloutSamples, TrainingBatch, group_advantages, select_batch

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

PROMPT = [3, 12]
GOOD, BAD = [14, 4, 15], [16, 4, 17]
"""The middle token is the environment's: the policy did not sample it."""
MASK = [1, 0, 1]


def configure(model, **algorithm):
    return TrainConfig(
        model=model,
        tasks=[SourceConfig(path=model / "none.jsonl")],
        steps=4,
        algorithm=AlgorithmConfig(**algorithm),
        optimizer=OptimizerConfig(learning_rate=Schedule(start=1e-3, warmup_steps=2), minibatches=2, epochs=2),
    )


def start(config):
    from trainer_adapter.verl.trainer import EmbeddedTrainer

    return EmbeddedTrainer(config)


def logprobs_under(weights, model, response):
    """What a sampler with these weights would report."""
    import torch
    from transformers import AutoModelForCausalLM

    reader = AutoModelForCausalLM.from_pretrained(model).eval()
    reader.load_state_dict(dict(weights))
    with torch.no_grad():
        logits = reader(torch.tensor([[*PROMPT, *response]])).logits[0, len(PROMPT) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0].tolist()


def compute_gains(response, before, after, model):
    pairs = zip(logprobs_under(before, model, response), logprobs_under(after, model, response), strict=True)
    return [new - old for old, new in pairs]


def make_batch(weights, model):
    """Two groups of one good and two bad rollouts; the second bad one has two samples."""
    weights = list(weights)
    known = {tuple(one): logprobs_under(weights, model, one) for one in (GOOD, BAD)}
    groups = []
    for group_id in ("g", "h"):
        rollouts = []
        for member, (response, reward, num_samples) in enumerate([(GOOD, 1.0, 1), (BAD, 0.0, 1), (BAD, 0.25, 2)]):
            trajectory_id = f"{group_id}.{member}-0"
            samples = [sample(trajectory_id, number, response, known[tuple(response)]) for number in range(num_samples)]
            rollouts.append(RolloutSamples(trajectory_id=trajectory_id, reward=reward, samples=samples))
        groups.append(GroupSamples(group_id=group_id, task_id="q", rollouts=rollouts))
    return select_batch(groups, keep_equal=False)


def sample(trajectory_id, number, response, logprobs):
    return TrainingSample(
        sample_id=f"{trajectory_id}.{number}",
        trajectory_id=trajectory_id,
        run="r",
        task_id="q",
        prompt_ids=TokenIds(PROMPT),
        response_ids=TokenIds(response),
        loss_mask=TokenIds(MASK),
        logprobs=Logprobs([value * mask for value, mask in zip(logprobs, MASK, strict=True)]),
        versions=TokenIds([0 if mask else -1 for mask in MASK]),
        temperature=1.0,
    )


def test_an_update_agrees_with_the_sampler_and_follows_the_reward(model):
    trainer = start(configure(model, entropy=Schedule(start=0.01), kl=0.01))
    before = [(name, tensor.clone()) for name, tensor in trainer.weights()]

    reports = [trainer.update(make_batch(trainer.weights(), model), step, version=0) for step in range(2)]
    after = list(trainer.weights())

    assert all(report.logprob_gap.largest < 1e-4 for report in reports)
    assert [report.learning_rate for report in reports] == [0.0005, 0.001]
    assert reports[0].metrics["grad_norm"] > 0
    assert 0 < reports[0].entropy < 4
    (good, bad) = [compute_gains(one, before, after, model) for one in (GOOD, BAD)]
    assert min(good[0], good[2]) > 0.1
    assert max(bad[0], bad[2]) < -0.1


def test_the_ratio_gap_is_that_of_the_first_minibatch(model):
    trainer = start(configure(model))
    batch = make_batch(trainer.weights(), model)

    own = trainer.update(batch, 1, version=0)
    stale = trainer.update(batch, 2, version=1)

    assert own.num_optimizer_steps == stale.num_optimizer_steps == 4
    assert own.metrics["ratio_gap"] < 1e-4, "the weights that learn have sampled, whatever later minibatches see"
    assert stale.metrics["ratio_gap"] > 0.01


def test_a_trainer_that_was_stopped_goes_on_exactly(model, tmp_path):
    import torch

    straight = start(configure(model))
    batch = make_batch(straight.weights(), model)
    straight.update(batch, 0, version=0)
    straight.save(tmp_path / "checkpoint")
    straight.update(batch, 1, version=1)

    resumed = start(configure(model))
    resumed.load(tmp_path / "checkpoint")
    resumed.update(batch, 1, version=1)

    pairs = zip(straight.weights(), resumed.weights(), strict=True)
    assert all(torch.equal(one, other) for (_, one), (_, other) in pairs)


@pytest.mark.parametrize("scale_by_std", [False, True])
def test_verls_advantages_are_those_of_the_formula(scale_by_std):
    from trainer_adapter.verl.tensors import pack_batch

    batch = select_batch([_rewarded("g", [1.0, 0.0, 0.25]), _rewarded("h", [2.0, 1.0])], keep_equal=False)
    algorithm = resolve_algorithm(AlgorithmConfig(scale_by_std=scale_by_std))
    expected = [
        *group_advantages([1.0, 0.0, 0.25], scale_by_std=scale_by_std),
        *group_advantages([2.0, 1.0], scale_by_std=scale_by_std),
    ]

    rows = pack_batch(batch, algorithm)["advantages"].tolist()
    assert [rows[row][0] for row in (0, 1, 3, 6, 7)] == pytest.approx(expected, abs=1e-5)
    assert rows[0] == pytest.approx([expected[0], 0.0, expected[0]], abs=1e-5)


def _rewarded(group_id, rewards):
    rollouts = [
        RolloutSamples(
            trajectory_id=f"{group_id}.{member}-0",
            reward=reward,
            samples=[sample(f"{group_id}.{member}-0", number, GOOD, [0.0] * 3) for number in range(1 + member)],
        )
        for member, reward in enumerate(rewards)
    ]
    return GroupSamples(group_id=group_id, task_id="q", rollouts=rollouts)


def test_without_any_own_token_there_is_no_gap(model):
    trainer = start(configure(model, correction=CorrectionConfig(weights=None)))

    assert trainer.update(make_batch(trainer.weights(), model), 0, version=5).logprob_gap is None


@pytest.mark.parametrize("bypass", [False, True])
def test_an_update_whose_tokens_are_all_rejected_says_so_and_changes_nothing(model, bypass):
    rule = RejectionRule(by="token_k1", lower=2.0, upper=3.0)  # tokens that the engine thinks twice as likely
    trainer = start(configure(model, correction=CorrectionConfig(bypass=bypass, reject=(rule,))))
    before = [(name, tensor.clone()) for name, tensor in trainer.weights()]

    report = trainer.update(make_batch(before, model), 0, version=0)

    assert (report.is_changed, report.metrics["rejected"]) == (False, 1.0)
    assert all((one == other).all() for (_, one), (_, other) in zip(before, trainer.weights(), strict=True))


TURNS, TOKENS = 15, 10


def forked_batch():
    """Two rollouts of 15 turns; at each turn three answers fork off, and the next turn continues none of them."""
    chance = random.Random(0)
    samples, rollout_of = [], []
    for rollout in (0, 1):
        trunk = [chance.randrange(12, 21) for _ in range(TURNS * TOKENS)]
        for turn in range(TURNS):
            for _ in range(3):
                context, answer = trunk[: turn * TOKENS], [chance.randrange(12, 21) for _ in range(TOKENS)]
                mask = [0] * len(context) + [1] * TOKENS
                samples.append(
                    TrainingSample(
                        sample_id=f"{rollout}.{len(samples)}",
                        trajectory_id=str(rollout),
                        run="r",
                        task_id="q",
                        prompt_ids=TokenIds(PROMPT),
                        response_ids=TokenIds(context + answer),
                        loss_mask=TokenIds(mask),
                        logprobs=Logprobs([-3.0 * one for one in mask]),
                        versions=TokenIds([one - 1 for one in mask]),
                        temperature=1.0,
                    )
                )
                rollout_of.append(rollout)
    return TrainingBatch(
        group_ids=["g", "g"],
        trajectory_ids=["0", "1"],
        rewards=[1.0, 0.0],
        reward_ids=[[], []],
        samples=samples,
        rollout_of=rollout_of,
    )


def watch_inputs(trainer):
    """Sizes of what goes through the model, padding included."""
    sizes = []
    module = trainer._worker.engine.module
    module.register_forward_pre_hook(lambda *call: sizes.append(call[2]["input_ids"].numel()), with_kwargs=True)
    return sizes


def test_forked_rollouts_are_computed_with_hardly_any_padding_and_the_same_gradient(model):
    batch = forked_batch()
    num_tokens = sum(len(one.prompt_ids) + len(one.response_ids) for one in batch.samples)
    trainer, at_once = (
        start(TrainConfig(model=model, tasks=[], steps=1, optimizer=OptimizerConfig(microbatch_tokens=size)))
        for size in (1024, 1_000_000)
    )
    sizes = watch_inputs(trainer)

    norm = trainer.update(batch, 0, version=0).metrics["grad_norm"]

    assert max(sizes) <= 1024
    assert 2 * num_tokens <= sum(sizes) < 2 * 1.1 * num_tokens  # measured, then trained
    assert norm == pytest.approx(at_once.update(batch, 0, version=0).metrics["grad_norm"], rel=1e-4)
