"""Losses that users write, by their contract: they train as ours do, and what breaks it is refused by name.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.algorithms import VERL_LOSSES, AlgorithmConfig, Schedule, resolve_algorithm
from trainer_adapter.config import OptimizerConfig, SourceConfig, TrainConfig, load_config

from .hand_case import BYPASS, ROLLOUTS, compute_logprobs, make_batch, make_engine

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other


@pytest.fixture
def own(monkeypatch):
    """``own(loss)``: the name of a loss that stands in a module of a user."""
    module = ModuleType("my_losses")
    monkeypatch.setitem(sys.modules, "my_losses", module)

    def name(loss):
        module.loss = loss
        return "my_losses:loss"

    return name


def update(model, tokens=16384, **algorithm):
    """Metrics of one update of the hand case."""
    from trainer_adapter.verl.trainer import EmbeddedTrainer

    config = TrainConfig(
        model=model,
        tasks=[SourceConfig(path=model / "none.jsonl")],
        steps=1,
        algorithm=AlgorithmConfig(**algorithm),
        optimizer=OptimizerConfig(learning_rate=Schedule(start=0.0), microbatch_tokens=tokens),
    )
    return EmbeddedTrainer(config).update(make_batch(), 0, version=1).metrics


def clipped(tokens, low=0.2, high=0.28):
    """PPO's loss, as a user writes it from the document."""
    import torch

    ratio = torch.exp(tokens.logprobs - tokens.old_logprobs)
    bounded = ratio.clamp(1 - low, 1 + high)
    losses = -torch.minimum(ratio * tokens.advantages, bounded * tokens.advantages)
    return losses, {"my/ratio": ratio.detach()}


def sequence(tokens, low, high):
    """GSPO's loss, as a user writes it from the document."""
    import torch

    ratio = torch.exp(tokens.rollout_mean)
    return -torch.minimum(ratio * tokens.advantages, ratio.clamp(1 - low, 1 + high) * tokens.advantages)


def log_ratio(tokens, low, high):
    del low, high
    return tokens.logprobs - tokens.old_logprobs


sequence.rollout_value = log_ratio


@pytest.mark.parametrize("tokens", [1, 16384])
@pytest.mark.parametrize(("loss", "ours"), [(clipped, "vanilla"), (sequence, "gspo")])
def test_a_loss_of_a_user_trains_as_ours_does(model, own, loss, ours, tokens):
    shared = {"loss_mean": "seq-mean-token-mean", "correction": BYPASS}
    expected = update(model, loss=ours, clip_low=0.2, clip_high=0.1, **shared)

    found = update(model, tokens, loss=own(loss), loss_options={"low": 0.2, "high": 0.1}, **shared)

    for name in ("actor/pg_loss", "grad_norm"):
        assert found[name] == pytest.approx(expected[name], rel=1e-6, abs=1e-6)


def test_metrics_of_a_users_loss_are_means_over_trained_tokens(model, own):
    import torch
    from transformers import AutoModelForCausalLM

    reader = AutoModelForCausalLM.from_pretrained(model).eval()
    with torch.no_grad():
        gaps = [compute_logprobs(reader, rows) - make_engine(rows) for _, rows in ROLLOUTS]

    found = update(model, 12, loss=own(clipped), correction=BYPASS)

    assert found["my/ratio"] == pytest.approx(float(torch.exp(torch.cat(gaps)).mean()), rel=1e-5)


@pytest.mark.parametrize("loss", ["vanilla", "gspo", "geo_mean", "reinforce", "dppo_tv", clipped])
def test_rows_without_trained_tokens_have_the_metrics_of_others(own, loss):
    """Else processes could not join theirs: one has such rows where their number is not a multiple of processes."""
    import torch
    from tensordict import TensorDict

    from trainer_adapter.verl.losses import LossPlan, _policy_loss

    name = loss if isinstance(loss, str) else own(loss)
    plan = LossPlan.of(resolve_algorithm(AlgorithmConfig(loss=name)), 0, 1)
    log_prob = torch.full((1, 2), -1.0, requires_grad=True)
    columns = dict.fromkeys(["old_log_probs", "rollout_log_probs", "advantages"], torch.full((1, 2), -0.5))

    def compute(size):
        mask = torch.full((1, 2), size)
        rows = TensorDict(columns | {"response_mask": mask}, batch_size=1)
        return _policy_loss(plan, log_prob, rows, None, mask.float())

    (total, of_idle), (_, of_others) = compute(0), compute(1)

    assert of_idle.keys() == of_others.keys()
    assert all(float(values.sum()) == 0 for values in of_idle.values())
    assert torch.autograd.grad(total, log_prob)[0].tolist() == [[0, 0]]


def test_a_loss_of_verl_is_that_of_its_formula():
    import torch

    from trainer_adapter import testing
    from trainer_adapter.losses import find_loss

    options = {"clip_ratio_low": 0.1, "clip_ratio_high": 0.05, "clip_ratio_c": 1.1}
    new, old, advantages = [[-1.0, -2.0], [-0.5]], [[-1.2, -1.9], [-0.4]], [0.5, -1.5]

    found = testing.hand_case(
        find_loss("dppo_tv", options), logprobs=new, old_logprobs=old, advantages=advantages, **options
    )

    gradient = []
    for row, before, advantage in zip(new, old, advantages, strict=True):
        p, q = torch.exp(torch.tensor(row)), torch.exp(torch.tensor(before))
        is_near = (p - q <= 0.05) if advantage > 0 else (p - q >= -0.1)
        gradient.append((-advantage * (p / q).clamp(max=1.1) * is_near / 3).tolist())
    assert [pytest.approx(row, rel=1e-5, abs=1e-7) for row in gradient] == found.gradient
    assert found.loss == pytest.approx(
        sum(
            slope * value
            for slopes, row in zip(gradient, new, strict=True)
            for slope, value in zip(slopes, row, strict=True)
        ),
        rel=1e-5,
    )


def test_every_loss_of_verl_is_ours_or_reached_by_name():
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    ours = {"vanilla", "gspo", "sapo", "cispo", "geo_mean", "gpg"}

    assert set(POLICY_LOSS_REGISTRY) - ours - {"bypass_mode"} == set(VERL_LOSSES)


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_losses_of_verl_that_depend_on_micro_batches_are_refused_by_name(name):
    from trainer_adapter.losses import check_named_loss

    with pytest.raises(BadInputError, match=f"loss '{name}': (depends on micro-batches|.* chance)"):
        check_named_loss(name, {}, has_reference=True)


def test_an_option_that_verl_does_not_have_lists_those_that_it_has():
    from trainer_adapter.losses import check_named_loss

    with pytest.raises(BadInputError, match=r"loss_options\.beta: .*expected some of clip_ratio, .*dro_beta"):
        check_named_loss("dro", {"beta": 1.0}, has_reference=True)
    check_named_loss("dro", {"dro_beta": 0.1}, has_reference=True)


def broken(kind):
    """A loss that breaks its contract in one way."""
    import torch

    calls = []

    def plain(tokens):
        return -tokens.advantages * tokens.logprobs

    def whitened(tokens):
        return plain(tokens) - tokens.advantages.mean() / (tokens.advantages.std() + 1e-6) * tokens.logprobs

    def largest(tokens):
        return torch.where(tokens.logprobs == tokens.logprobs.max(), 0.0, plain(tokens))

    def most(tokens):
        limit = torch.quantile(tokens.advantages.abs(), 0.9) if len(tokens.advantages) > 8 else 9.0
        return torch.where(tokens.advantages.abs() > limit, 0.0, plain(tokens))

    def state(tokens):
        calls.append(1)
        return plain(tokens) * len(calls)

    def gradient(tokens):
        own = plain(tokens)
        return own.detach() + (own - own.detach()) * len(own)

    def named(tokens):
        return plain(tokens), {"a": tokens.logprobs} if tokens.advantages.max() > 1.0 else {}

    losses = {
        "named": named,
        "mean": lambda tokens: plain(tokens) - plain(tokens).mean(),
        "whitened": whitened,
        "size": lambda tokens: plain(tokens) / len(tokens.logprobs),
        "order": lambda tokens: plain(tokens) + 0.1 * torch.cumsum(tokens.logprobs, 0),
        "largest": largest,
        "most": most,
        "first": lambda tokens: torch.where(torch.arange(len(tokens.logprobs)) == 0, 0.0, plain(tokens)),
        "gradient": gradient,
        "chance": lambda tokens: plain(tokens) * torch.rand(len(tokens.logprobs)),
        "state": state,
        "stopped": lambda tokens: plain(tokens).detach(),
        "summed": lambda tokens: plain(tokens).sum(),
        "infinite": lambda tokens: plain(tokens) / (tokens.logprobs - tokens.logprobs),
        "part": lambda tokens: plain(tokens) if len(tokens.logprobs) > 1 else plain(tokens).sum(),
        "failing": lambda tokens: plain(tokens) + tokens.rollout_mean,
    }
    return losses[kind]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        *((kind, "depends on micro-batches") for kind in ("mean", "whitened", "size", "order", "largest", "most")),
        *((kind, "depends on micro-batches") for kind in ("first", "gradient")),
        ("chance", "at the second call"),
        ("state", "at the second call"),
        ("stopped", "expected a gradient"),
        ("summed", "expected one number for each of 64 tokens"),
        ("infinite", "finite"),
        ("named", "expected metrics of the same names for each micro-batch"),
        ("part", r"fails over a micro-batch of 1 tokens, ValueError\('loss: expected one number for each"),
        ("failing", "fails over 64 made-up tokens"),
    ],
)
def test_a_loss_that_breaks_its_contract_is_refused_by_name(own, kind, reason):
    from trainer_adapter import testing
    from trainer_adapter.losses import check_named_loss

    with pytest.raises(BadInputError, match=f"loss 'my_losses:loss': .*{reason}"):
        check_named_loss(own(broken(kind)), {}, has_reference=True)
    with pytest.raises(BadInputError, match=reason):
        testing.check_loss(broken(kind))


def test_a_rollout_value_that_depends_on_micro_batches_is_refused(own):
    from trainer_adapter.losses import check_named_loss

    def loss(tokens):
        return -tokens.advantages * tokens.rollout_mean

    loss.rollout_value = lambda tokens: tokens.logprobs / len(tokens.logprobs)

    with pytest.raises(BadInputError, match=r"its rollout_value.*: depends on micro-batches"):
        check_named_loss(own(loss), {}, has_reference=True)


def test_a_loss_by_the_first_weights_is_refused_where_a_run_has_none(model, own):
    name = own(lambda tokens: tokens.advantages * (tokens.reference_logprobs - tokens.logprobs))

    with pytest.raises(BadInputError, match=r"loss 'my_losses:loss': fails .*without algorithm\.kl"):
        update(model, loss=name)
    assert "kl_loss" in update(model, loss=name, kl=0.1, correction=BYPASS)


def test_a_run_with_such_a_loss_does_not_start(model, own):
    with pytest.raises(BadInputError, match="loss 'my_losses:loss': depends on micro-batches"):
        update(model, loss=own(broken("mean")))


@pytest.mark.parametrize("kind", ["advantage", "credit"])
def test_a_run_with_an_advantage_or_credit_that_fails_does_not_start(model, own, kind):
    with pytest.raises(BadInputError, match=f"algorithm.{kind} 'my_losses:loss': fails over made-up values"):
        update(model, **{kind: own(lambda _: 1 / 0)})


def test_a_gradient_that_is_not_that_of_the_loss_is_found_and_a_stopped_one_can_be_given():
    import torch

    from trainer_adapter import testing
    from trainer_adapter.losses import find_loss

    def weight(tokens):
        return torch.exp(tokens.logprobs - tokens.old_logprobs).clamp(1 - 0.3, 1 + 0.2)

    cispo = find_loss("cispo", {"low": 0.3, "high": 0.2})

    testing.check_gradient(clipped)
    testing.check_gradient(sequence, low=0.1, high=0.1)
    testing.check_gradient(cispo, lambda tokens: -weight(tokens) * tokens.advantages, low=0.3, high=0.2)
    with pytest.raises(BadInputError, match="pass the expected one"):
        testing.check_gradient(cispo, low=0.3, high=0.2)


def centred(judged, lone):
    """The value without the mean of its group, or ``lone(value)`` where it is compared with none."""
    pairs = [*zip(judged.values, judged.baselines, strict=True)]
    groups = [[other for other, of in pairs if of == name] for _, name in pairs]
    return [
        value - sum(group) / len(group) if len(group) > 1 else lone(value)
        for (value, _), group in zip(pairs, groups, strict=True)
    ]


@pytest.mark.parametrize(
    ("advantage", "reason"),
    [
        (lambda judged: centred(judged, lambda value: value), "expected 0 for a group of equal values or a single one"),
        (lambda judged: [value - judged.values[0] for value in judged.values], "whatever their order"),
        (lambda judged: [one - sum(judged.values) for one in judged.values], "values of its group alone"),
    ],
)
def test_an_advantage_that_breaks_its_contract_is_refused(advantage, reason):
    from trainer_adapter import testing

    testing.check_advantage(lambda judged: centred(judged, lambda _: 0.0))
    with pytest.raises(BadInputError, match=reason):
        testing.check_advantage(advantage)


@pytest.mark.parametrize("mean", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_a_hand_case_is_the_loss_of_an_update(mean):
    from trainer_adapter import testing

    found = testing.hand_case(
        clipped, logprobs=[[-1.0, -2.0], [-0.5]], old_logprobs=[[-1.5, -2.0], [-0.5]], advantages=[1.0, -1.0], mean=mean
    )

    # ratios 1.65, cut at 1.28, and 1, and 1
    size, rollouts = {"token-mean": (3, 1), "seq-mean-token-sum": (1, 2), "seq-mean-token-mean": (2, 2)}[mean]
    of_first, of_second = -(1.28 + 1) / (size * rollouts), 1 / (rollouts * (3 if mean == "token-mean" else 1))
    assert found.loss == pytest.approx(of_first + of_second)
    assert found.gradient[0][0] == 0.0, "it is cut"


def test_parts_written_from_the_document_alone_hold_and_train(model, tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs/how-to/own-parts.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    parts = ModuleType("my_parts")
    monkeypatch.setitem(sys.modules, "my_parts", parts)

    for block in sorted(blocks, key=lambda one: "from my_parts" in one):  # the parts, then their tests
        exec(compile(block, str(page), "exec"), vars(parts) if "from my_parts" not in block else {})

    (configuration,) = re.findall(r"```\n(model: .*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "run.yaml").write_text(configuration)
    assert load_config(tmp_path / "run.yaml").algorithm.credit_options == {"share": 0.5}

    options = {"advantage": "my_parts:leave_one_out", "correction": BYPASS, "loss_mean": "seq-mean-token-mean"}
    for loss, ours in (("clipped", "vanilla"), ("sequence", "gspo")):
        found = update(model, 12, loss=f"my_parts:{loss}", loss_options={"low": 0.2, "high": 0.1}, **options)
        expected = update(
            model,
            loss=ours,
            clip_low=0.2,
            clip_high=0.1,
            estimator="rloo",
            correction=BYPASS,
            loss_mean="seq-mean-token-mean",
        )
        assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-6)


def test_options_of_our_losses_are_those_of_the_algorithm():
    resolved = resolve_algorithm(AlgorithmConfig(name="dapo", clip_dual=2.0))

    assert resolved.loss_options == {"low": 0.2, "high": 0.28, "dual": 2.0}
