"""Algorithms by name: the defaults of their papers, overridden by what a configuration gives."""

import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.algorithms.options import CorrectionConfig, RejectionRule
from trainer_adapter.config import load_config

BOUNDS = {
    None: (0.2, 0.28),
    "grpo": (0.2, 0.2),
    "dr_grpo": (0.2, 0.2),
    "dapo": (0.2, 0.28),
    "rloo": (None, None),
    "reinforce++": (0.2, 0.2),
    "gspo": (3e-4, 4e-4),
    "sapo": (None, None),
    "cispo": (10.0, 0.2),
    "gmpo": (0.4, 0.4),
}


@pytest.mark.parametrize(("name", "bounds"), BOUNDS.items())
def test_every_algorithm_has_the_bounds_of_its_paper(name, bounds):
    resolved = resolve_algorithm(AlgorithmConfig(name=name))

    assert (resolved.clip_low, resolved.clip_high) == bounds


def test_a_loss_that_replaces_the_algorithms_brings_its_own_bounds():
    replaced = resolve_algorithm(AlgorithmConfig(name="grpo", loss="gspo"))
    given = resolve_algorithm(AlgorithmConfig(name="gspo", clip_low=0.1))

    assert (replaced.clip_low, replaced.clip_high) == (3e-4, 4e-4)
    assert (given.clip_low, given.clip_high) == (0.1, 4e-4)


def test_without_a_name_a_run_is_what_it_was():
    resolved = resolve_algorithm(AlgorithmConfig())

    assert (resolved.estimator, resolved.scale_by_std) == ("grpo", False)
    assert (resolved.loss, resolved.loss_mean, resolved.clip_dual) == ("vanilla", "token-mean", 3.0)
    assert (resolved.kl, resolved.correction) == (0.0, CorrectionConfig(weights="token", upper=2.0))


def test_an_option_that_is_given_overrides_the_paper():
    paper = resolve_algorithm(AlgorithmConfig(name="grpo"))
    own = resolve_algorithm(AlgorithmConfig(name="grpo", kl=0.0, scale_by_std=False, loss_mean="token-mean"))

    assert (paper.kl, paper.scale_by_std, paper.loss_mean) == (0.04, True, "seq-mean-token-mean")
    assert (own.kl, own.scale_by_std, own.loss_mean) == (0.0, False, "token-mean")


def test_dr_grpos_divisor_is_a_constant_of_the_configuration():
    assert resolve_algorithm(AlgorithmConfig(name="dr_grpo")).loss_scale_factor == 3000
    assert resolve_algorithm(AlgorithmConfig(name="dr_grpo", loss_scale_factor=512)).loss_scale_factor == 512
    assert resolve_algorithm(AlgorithmConfig(name="dapo")).loss_scale_factor is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"name": "magic"}, "expected one of grpo, dr_grpo"),
        ({"name": "sapo", "clip_low": 0.2}, "no bounds"),
        ({"tau_positive": 2.0}, "no gate"),
        ({"name": "rloo", "scale_by_std": True}, "scale_by_std"),
        ({"loss_scale_factor": 100.0}, "loss_scale_factor"),
        ({"discount": 0.9}, "discount"),
        ({"name": "gmpo", "credit": "turn"}, "credit"),
        ({"correction": CorrectionConfig(lower=3.0)}, r"correction\.lower"),
        ({"correction": CorrectionConfig(reject=(RejectionRule(by="token_k3", upper=1.0, lower=0.1),))}, "k1"),
        ({"correction": CorrectionConfig(reject=(RejectionRule(by="token_k1", upper=0.5),))}, "1 or more for k1"),
        ({"correction": CorrectionConfig(weights=None, lower=0.5)}, "without weights they change nothing"),
        ({"correction": CorrectionConfig(weights=None, normalize=True)}, "without weights they change nothing"),
        ({"correction": CorrectionConfig(bypass=True, weights="sequence")}, "'vanilla' has no weights beside it"),
        ({"correction": CorrectionConfig(bypass=True, lower=0.5)}, "'vanilla' has no weights beside it"),
        ({"name": "gmpo", "correction": CorrectionConfig(lower=0.5)}, "a single 0"),
        ({"name": "gspo", "clip_dual": 3.0}, "'gspo' has no such bound"),
        ({"kl_estimator": "k1"}, "kl_estimator"),
        ({"name": "grpo", "kl": 0.0, "kl_estimator": "k1"}, "kl_estimator"),
    ],
)
def test_an_option_without_effect_is_refused_by_name(options, named):
    with pytest.raises(BadInputError, match=named):
        resolve_algorithm(AlgorithmConfig(**options))


@pytest.mark.parametrize(
    "options",
    [
        {"name": "rloo", "correction": CorrectionConfig(bypass=True, weights="sequence", lower=0.5, normalize=True)},
        {"correction": CorrectionConfig(bypass=True, reject=(RejectionRule(by="seq_mean_k1", upper=1.0),))},
        {"name": "gmpo", "correction": CorrectionConfig(weights="sequence")},
        {"kl": 0.1, "kl_estimator": "k1+"},
        {"clip_dual": 2.0},
    ],
)
def test_options_that_act_together_are_taken(options):
    assert resolve_algorithm(AlgorithmConfig(**options))


def test_a_configuration_with_an_unknown_algorithm_is_refused_where_it_is_read(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("model: m\ntasks: t\nsteps: 1\nalgorithm: {name: ppo}\n")

    with pytest.raises(BadInputError, match=r"run\.yaml: algorithm\.name: expected one of"):
        load_config(path)


TEACHER = "distill: {teacher: {url: http://127.0.0.1:8001, model: large}"


def read(tmp_path, algorithm, rollouts="{}"):
    path = tmp_path / "run.yaml"
    path.write_text(f"model: m\ntasks: t\nsteps: 1\nalgorithm: {algorithm}\nrollouts: {rollouts}\n")
    return load_config(path)


def test_a_teacher_is_asked_for_every_group_whatever_its_rewards(tmp_path):
    config = read(tmp_path, f"{{name: dapo, {TEACHER}, coefficient: 0.5}}}}")
    algorithm = resolve_algorithm(config.algorithm)

    assert algorithm.distill is not None
    assert (algorithm.distill.coefficient, algorithm.distill.replace_rewards) == (0.5, False)
    assert algorithm.is_regularised(0, 1), "groups of equal rewards stay"
    assert not algorithm.resamples_equal, "and none is replaced"


@pytest.mark.parametrize(
    ("algorithm", "rollouts", "found"),
    [
        (f"{{name: gmpo, {TEACHER}}}}}", "{}", "distill: loss 'geo_mean' has one advantage"),
        (f"{{credit: turn, {TEACHER}, replace_rewards: true}}}}", "{}", "replace_rewards: credit is about rewards"),
        (f"{{estimator: rloo, {TEACHER}, replace_rewards: true}}}}", "{}", "replace_rewards: estimator is about"),
        (f"{{scale_by_std: true, {TEACHER}, replace_rewards: true}}}}", "{}", "replace_rewards: scale_by_std is"),
        (
            f"{{overlong_penalty: {{max_tokens: 9, buffer_tokens: 2}}, {TEACHER}, replace_rewards: true}}}}",
            "{}",
            "replace_rewards: overlong_penalty is",
        ),
        (f"{{{TEACHER}}}}}", "{temperature: 0.7}", r"distill: a teacher answers at temperature 1, but .* is 0\.7"),
        (f"{{{TEACHER}}}}}", "{extra_groups: 2}", "extra_groups: with algorithm.distill groups of equal rewards teach"),
        (f"{{{TEACHER}, coefficient: 0}}}}", "{}", "coefficient"),
        ("{distill: {teacher: {url: localhost, model: large}}}", "{}", "expected a url such as"),
        ("{distill: {teacher: {url: http://127.0.0.1:8001}}}", "{}", "model"),
    ],
)
def test_what_a_teacher_cannot_be_combined_with_is_named(tmp_path, algorithm, rollouts, found):
    with pytest.raises(BadInputError, match=found):
        read(tmp_path, algorithm, rollouts)


def test_a_teacher_may_be_beside_any_other_loss_and_credit(tmp_path):
    for name in ("grpo", "dr_grpo", "dapo", "rloo", "reinforce++", "gspo", "sapo", "cispo"):
        read(tmp_path, f"{{name: {name}, {TEACHER}}}}}", "{temperature: 1.0}")
    read(tmp_path, f"{{credit: turn, {TEACHER}}}}}")
