"""Advantages, credits, filters, curricula and ramps of users: by path or entry point, held to their contracts."""

import random
import sys
from importlib.metadata import EntryPoint, EntryPoints
from statistics import fmean
from types import ModuleType

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema.task import Task
from agent_layer.schema.training import AdvantageRule
from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.config import load_config, write_config
from trainer_adapter.data.advantages import Credits, advantage_rule, assign_credit, find_changed_code, value_advantages
from trainer_adapter.data.credit import CreditedValue, CreditRule, RolloutSamples, Turn, differ, find_values
from trainer_adapter.data.own_parts import check_own_parts
from trainer_adapter.data.replay import rebuild_batch
from trainer_adapter.selection import SuccessShare, UserCurriculum

from .test_kept_tokens import rollout, updated


def weighted(judged, power=1.0):
    """OPO: the baseline of a group is the mean of its values, weighted by their lengths (Hao et al. 2025)."""
    found = []
    for value, name in zip(judged.values, judged.baselines, strict=True):
        group = [(one, size**power) for one, other, size in zip(*judged, strict=True) if other == name]
        found.append(value - sum(one * weight for one, weight in group) / sum(weight for _, weight in group))
    return found


def over_batch(judged):
    return [value - fmean(judged.values) for value in judged.values]


over_batch.compares_groups = False


def last_turn(rollout, share=0.5):
    """The last turn has the reward, those before share a part of it."""
    calls = [turn.call_id for turn in rollout.turns]
    early = [CreditedValue(value=share * rollout.reward, place="early", calls=calls[:-1])] if calls[:-1] else []
    return [*early, CreditedValue(value=rollout.reward, place="last", calls=calls[-1:])] if calls else []


def doubled(judged):
    return [2 * value for value in weighted(judged)]


class HardFirst:
    memory = 0.5

    def __init__(self, minimum: int = 2) -> None:
        self._minimum = minimum

    def share(self, num_rollouts, rates):
        shares = [self._minimum] * len(rates)
        shares[rates.index(min(rates))] += num_rollouts - sum(shares)
        return shares


class OnlyKind:
    retry = 0.25

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def admits(self, task, success):
        return task.labels.get("kind") == self._kind and success != 1.0


class AfterGroups:
    def __init__(self, most: int = 2) -> None:
        self._most = most

    def rises(self, successes):
        return len(successes) > self._most


@pytest.fixture(autouse=True)
def mine(monkeypatch):
    """A module of a user with these parts."""
    module = ModuleType("mine")
    for part in (weighted, doubled, over_batch, last_turn, HardFirst, OnlyKind, AfterGroups):
        setattr(module, part.__name__, part)
    monkeypatch.setitem(sys.modules, "mine", module)
    return module


def read(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(f"model: m\nsteps: 1\n{text}\n")
    return load_config(path)


JUDGED = Credits(values=[1.0, 0.0, 3.0], baselines=["g", "g", "lone"], spans=[], num_tokens=[3, 1, 2])


def test_an_advantage_of_a_user_takes_the_place_of_the_estimator():
    algorithm = resolve_algorithm(AlgorithmConfig(advantage="mine:weighted", advantage_options={"power": 1.0}))

    assert value_advantages(JUDGED, advantage_rule(algorithm)) == pytest.approx([0.25, -0.75, 0.0])
    assert algorithm.compares_groups, "groups of equal values are left out"
    assert not resolve_algorithm(AlgorithmConfig(advantage="mine:over_batch")).compares_groups


def test_the_record_of_an_update_names_the_part_its_options_and_its_code(mine):
    options = AlgorithmConfig(advantage="mine:weighted", advantage_options={"power": 2.0}, credit="mine:last_turn")
    rule = msgspec.convert(msgspec.to_builtins(advantage_rule(resolve_algorithm(options))), AdvantageRule)

    assert (rule.estimator, rule.options) == ("mine:weighted", {"power": 2.0})
    assert find_changed_code(rule, "mine:last_turn") is None
    mine.last_turn = type("Later", (), {"version": "2", "__call__": lambda *_: []})()
    assert find_changed_code(rule, "mine:last_turn") == "mine:last_turn"
    del mine.weighted
    assert find_changed_code(rule, "mine:last_turn") == "mine:weighted"


def replay_differences(**options):
    """What a replay finds of an update whose kept advantages were 0.5 and -0.5; its rollouts have 3 tokens each."""
    rule = advantage_rule(resolve_algorithm(AlgorithmConfig(**options)))
    record, stored = updated(rollout("x", 1.0), rollout("y", 0.0), rule=rule)
    return lambda: rebuild_batch(record, stored.__getitem__).differences


def test_a_replay_computes_advantages_by_the_users_own_code_and_says_where_it_changed(mine):
    right, wrong = replay_differences(advantage="mine:weighted"), replay_differences(advantage="mine:doubled")

    assert right() == []
    assert "expected the advantage 1, found 0.5" in wrong()[0]
    mine.weighted = type("Later", (), {"version": "2", "__call__": over_batch})()
    assert ["'mine:weighted'" in one and "not compared" in one for one in right()] == [True]


def test_records_of_earlier_releases_name_no_code():
    rule = msgspec.json.decode(b'{"estimator": "rloo"}', type=AdvantageRule)

    assert find_changed_code(rule, "rollout") is None
    assert value_advantages(JUDGED, rule) == pytest.approx([1.0, -1.0, 0.0])


def turns(*calls, reward=1.0):
    return RolloutSamples(trajectory_id="t", reward=reward, samples=[], turns=[Turn(call_id=call) for call in calls])


def test_a_credit_of_a_user_judges_calls():
    rule = CreditRule(credit="mine:last_turn", options={"share": 0.25})

    values = find_values(turns("a", "b", "c"), rule)

    assert [(one.calls, one.value, one.place) for one in values] == [
        (["a", "b"], 0.25, "early"),
        (["c"], 1.0, "last"),
    ]
    assert differ([turns("a"), turns("b", reward=0.0)], rule)
    assert not differ([turns("a"), turns("b", "c")], rule), "the early one is compared with none"


def test_a_value_of_several_calls_is_one_value_with_their_tokens():
    from .test_credit import intake, played  # noqa: PLC0415  # its trajectories

    rule = CreditRule(credit="mine:last_turn")
    batch, judged = credit(intake(rule, played("one", 1.0, "x", "x", "x"), played("two", 0.0, "x", "x")), rule)

    assert judged.values == [0.5, 1.0, 0.0, 0.0]
    assert judged.num_tokens == [2, 1, 1, 1]
    assert [value for _, _, value in judged.spans[0]] == [0, 0, 1]
    assert batch.credit == "mine:last_turn"


def credit(group, rule):
    from trainer_adapter.data.advantages import select_batch  # noqa: PLC0415

    batch = select_batch([group.samples], keep_equal=False, rule=rule)
    return batch, assign_credit(batch, rule)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], "'a' in 0"),
        ([CreditedValue(value=1.0, calls=["a", "a"])], "'a' in 2"),
        ([CreditedValue(value=1.0, calls=["a"]), CreditedValue(value=0.0, calls=["a"])], "'a' in 2"),
        ([CreditedValue(value=1.0, calls=["a", "z"])], "'z' in 1"),
        ([CreditedValue(value=float("nan"), calls=["a"])], "finite values"),
        ([1.0], "expected CreditedValues"),
    ],
)
def test_a_credit_that_does_not_judge_each_call_once_is_refused_by_name(mine, values, reason):
    mine.wrong = lambda _: values

    with pytest.raises(BadInputError, match=f"algorithm.credit 'mine:wrong': .*{reason}"):
        find_values(turns("a"), CreditRule(credit="mine:wrong"))


def first_of_all(judged):
    return [value - judged.values[0] for value in judged.values]


def uncentred(judged):
    return judged.values


def failing(*_):
    raise KeyError("plum")


def by_chance(rollout):
    return [CreditedValue(value=random.random(), calls=[turn.call_id for turn in rollout.turns])]


@pytest.mark.parametrize(
    ("kind", "part", "reason"),
    [
        ("advantage", lambda _: [1.0], "expected a finite number for each of 9 values"),
        ("advantage", first_of_all, "must follow from the values of its group alone"),
        ("advantage", lambda judged: list(over_batch(judged)), "must follow from the values"),
        ("advantage", uncentred, "expected 0 for a group of equal values"),
        ("advantage", failing, r"fails over made-up values, KeyError\('plum'\)"),
        ("credit", lambda _: [], "expected each of 5 calls"),
        ("credit", lambda rollout: [turn.reward for turn in rollout.turns], "expected CreditedValues"),
        ("credit", by_chance, "other values at the second call"),
        ("credit", failing, r"fails over made-up values, KeyError\('plum'\)"),
    ],
)
def test_an_advantage_or_credit_that_breaks_its_contract_is_refused_before_a_run(mine, kind, part, reason):
    mine.wrong = part
    config = AlgorithmConfig(loss="reinforce", **{kind: "mine:wrong"})

    with pytest.raises(BadInputError, match=f"algorithm.{kind} 'mine:wrong': .*{reason}"):
        check_own_parts(resolve_algorithm(config))


def test_parts_that_keep_their_contracts_are_tried_and_taken():
    for parts in ({}, {"advantage": "mine:weighted"}, {"advantage": "mine:over_batch"}, {"credit": "mine:last_turn"}):
        check_own_parts(resolve_algorithm(AlgorithmConfig(loss="reinforce", **parts)))


@pytest.mark.parametrize("found", [[1.0], [1.0, float("inf"), 0.0], [0.0] * 4])
def test_an_advantage_that_is_no_number_for_each_value_is_refused_by_name(mine, found):
    mine.wrong = lambda _: found

    with pytest.raises(
        BadInputError, match=r"algorithm\.advantage 'mine:wrong': expected a finite number for each of 3"
    ):
        value_advantages(JUDGED, AdvantageRule(estimator="mine:wrong"))


SELECTION = """
tasks: [{taskset: t, ramp: {name: "mine:AfterGroups", most: 3}}]
filters: [{name: "mine:OnlyKind", kind: easy}, {name: input_size, most: 9}]
rollouts: {curriculum: {name: "mine:HardFirst", minimum: 3}}
"""


def test_filters_curricula_and_ramps_of_users_are_chosen_like_ours(tmp_path):
    config = read(tmp_path, SELECTION)
    write_config(config, tmp_path / "again.json")  # as the processes of a run get it
    for one in (config, load_config(tmp_path / "again.json")):
        (first, _), curriculum, ramp = one.filters, one.rollouts.curriculum, one.tasks[0].ramp
        assert [first.admits(Task(id="t", run="r", labels={"kind": kind}), 0.5) for kind in ("easy", "hard")] == [
            True,
            False,
        ]
        assert (first.retry, curriculum.memory) == (0.25, 0.5)
        assert curriculum.share(12, [0.5, 0.0, 1.0]) == [3, 6, 3]
        assert [ramp.rises([1.0] * size) for size in (3, 4)] == [False, True]


def test_a_curriculum_that_shares_out_a_group_of_one_is_refused(mine):
    mine.Single = type("Single", (), {"share": lambda *_: [1, 3]})

    with pytest.raises(BadInputError, match=r"curriculum 'mine:Single': .*at least 2 for each of 2 tasks"):
        UserCurriculum(of="mine:Single").share(4, [0.0, 1.0])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tasks: t\nalgorithm: {loss: vanila}", r"algorithm\.loss 'vanila': .*registered: vanilla, gspo, .*dppo_kl"),
        ("tasks: t\nalgorithm: {advantage: gae}", r"algorithm\.advantage 'gae': .*registered: none"),
        ("tasks: t\nalgorithm: {credit: turns}", r"algorithm\.credit 'turns': .*registered: rollout, turn, agent"),
        ("tasks: t\nalgorithm: {credit: 'mine:nothing'}", "'mine:nothing': cannot be imported"),
        ("tasks: t\nalgorithm: {advantage: 'nowhere:thing'}", "'nowhere:thing': cannot be imported"),
        ("tasks: t\nalgorithm: {credit: 'statistics:meen'}", "'statistics:meen': .* it has: .*fmean"),
        ("tasks: t\nalgorithm: {advantage: 'math:hypot'}", "'math:hypot': no signature"),
        ("tasks: t\nalgorithm: {advantage: rloo}", "'rloo': it is one of ours; write it as 'estimator'"),
        ("tasks: t\nfilters: [{name: succes_between}]", "'succes_between': .*registered: success_between, input_size"),
        ("tasks: t\nrollouts: {curriculum: {name: even}}", "'even': .*registered: success_share, variance_share"),
        ("tasks: [{taskset: t, ramp: {name: slow}}]", "'slow': .*registered: success_ramp, group_ramp"),
        (
            "tasks: t\nalgorithm: {advantage: 'mine:weighted', advantage_options: {pwr: 2}}",
            "'mine:weighted': .*'pwr'; its options are: power=1.0",
        ),
        (
            "tasks: t\nfilters: [{name: 'mine:OnlyKind'}]",
            "'mine:OnlyKind': missing .*'kind'; its options are: kind: str",
        ),
        ("tasks: t\nrollouts: {curriculum: {name: 'mine:weighted'}}", "'mine:weighted': missing .*'judged'"),
        (
            "tasks: t\nfilters: [{name: 'mine:AfterGroups'}]",
            "'mine:AfterGroups': expected a class with a method 'admits'",
        ),
        ("tasks: t\nalgorithm: {advantage: 'mine:over_batch', estimator: rloo}", "takes the place of estimator"),
        ("tasks: t\nalgorithm: {advantage_options: {power: 2}}", "no advantage that takes them"),
        ("tasks: t\nalgorithm: {credit_options: {share: 2}}", "credit 'rollout' takes none"),
        ("tasks: t\nalgorithm: {loss: gspo, loss_options: {low: 2}}", "loss 'gspo' takes none"),
    ],
)
def test_what_there_is_not_is_named_where_the_configuration_is_read(tmp_path, text, reason):
    with pytest.raises(BadInputError, match=reason):
        read(tmp_path, text)


def test_parts_of_installed_packages_have_names(tmp_path, monkeypatch):
    points = {
        "agent_layer.advantages": EntryPoint("opo", "mine:weighted", "agent_layer.advantages"),
        "agent_layer.curricula": EntryPoint("hard_first", "mine:HardFirst", "agent_layer.curricula"),
    }
    monkeypatch.setattr("envs.plug_ins.entry_points", lambda group: EntryPoints(filter(None, [points.get(group)])))

    config = read(
        tmp_path, "tasks: t\nalgorithm: {advantage: opo}\nrollouts: {curriculum: {name: hard_first, minimum: 4}}"
    )

    assert resolve_algorithm(config.algorithm).advantage == "opo"
    assert config.rollouts.curriculum.share(9, [0.0, 1.0]) == [5, 4]
    with pytest.raises(BadInputError, match=r"'gae': .*registered: opo"):
        read(tmp_path, "tasks: t\nalgorithm: {advantage: gae}")


def test_a_curriculum_without_a_name_is_what_it_was(tmp_path):
    config = read(tmp_path, "tasks: t\nrollouts: {curriculum: {floor: 0.4}}")

    assert config.rollouts.curriculum == SuccessShare(floor=0.4)


def test_a_module_of_the_present_directory_is_found(tmp_path, monkeypatch):
    (tmp_path / "found_here_44.py").write_text("def advantage(judged):\n    return [0.0 for _ in judged.values]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    assert resolve_algorithm(AlgorithmConfig(advantage="found_here_44:advantage")).advantage
