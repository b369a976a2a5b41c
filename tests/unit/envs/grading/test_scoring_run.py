"""Runs of scorers: forms, verdicts, tampering that counts, and lost boxes that never become a score."""

import zlib

import pytest

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema import RewardSpec, Task, Trajectory, finding_kinds, rollout_reward
from agent_layer.schema.findings import find_alarms
from agent_layer.schema.sandbox import ExecResult, SandboxSpec
from envs.failures import ModelCallError
from envs.grading import ScoringRun, Verdict
from envs.registry import hash_scorer
from envs.scorers import load_scorer, run_scorer


class Fixed:
    """A scorer that answers what it was made with."""

    version = 1

    def __init__(self, answer=1.0):
        self.answer = answer

    async def score(self, _):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class InBox:
    """A scorer that uses a box, and calls any failure a wrong solution."""

    async def score(self, context):
        try:
            box = await context.sandbox()
            return float((await box.exec(["true"])).status == "exited")
        except SandboxError:
            return 0.0


class ScriptedBox:
    """A box whose commands end as told."""

    id, kind, spec, owner = "b", "scripted", SandboxSpec(), "test"

    def __init__(self, status):
        self.status, self.is_closed = status, False

    async def exec(self, _, **__):
        return ExecResult(status=self.status, exit_code=0, seconds=0.25)

    async def close(self):
        self.is_closed = True


def run_over(task=None, **options):
    return ScoringRun(task or Task(id="t", run="r"), Trajectory(trajectory_id="t-0"), None, **options)


async def compute_rewards(answer, **rewards):
    task = Task(id="t", run="r", rewards={name: RewardSpec() for name in rewards})
    return await run_scorer(Fixed(answer), run_over(task), 5)


def test_functions_classes_and_objects_are_scorers(write_module):
    write_module(
        "kinds",
        "async def plain(task, trajectory, result): return 1\n"
        "class Judge:\n"
        "    async def score(self, context): return 1\n"
        "made = Judge()\n"
        "def simple(task, trajectory, result): return 1\n"
        "class Simple:\n"
        "    def score(self, context): return 1\n",
    )

    names = ("plain", "Judge", "made", "simple", "Simple")
    assert [load_scorer(f"kinds:{one}") is not None for one in names] == [True] * 5
    assert load_scorer("kinds:Judge") is load_scorer("kinds:Judge")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("class scorer:\n    def __init__(self, more): pass\n    async def score(self, context): ...\n", "defaults"),
        ("def scorer(task): return 1\n", "neither"),
        ("class scorer:\n    def score(self): return 1\n", "neither"),
        ("scorer = 3\n", "neither"),
    ],
)
def test_what_cannot_score_is_refused(write_module, code, reason):
    name = f"unfit_{zlib.crc32(code.encode())}"
    write_module(name, code)

    with pytest.raises(BadInputError, match=reason):
        load_scorer(f"{name}:scorer")


def test_objects_of_one_class_differ_by_their_version():
    one, other = Fixed(), Fixed()
    other.version = 2

    assert hash_scorer(one) == hash_scorer(Fixed())
    assert hash_scorer(one) != hash_scorer(other)


async def test_a_number_is_the_only_reward_and_a_verdict_names_them():
    (named,) = await compute_rewards(0.5, right=1)
    (total, *rest) = await compute_rewards(Verdict(scores={"a": 0.5, "b": 0.25}, evidence={"seen": [1]}))

    assert (named.name, named.score) == ("right", 0.5)
    assert [(one.name, one.score) for one in (total, *rest)] == [("a", 0.5), ("b", 0.25), ("reward", 0.75)]
    assert total.comment == '{"seen":[1]}'


async def test_step_scores_are_apart_from_those_of_the_rollout():
    rewards = await compute_rewards(Verdict(scores={"right": 1.0}, step_scores={2: {"style": 0.5}}), right=1)

    assert [(one.scope, one.step, one.name, one.score) for one in rewards] == [
        ("rollout", None, "right", 1.0),
        ("step", 2, "style", 0.5),
    ]
    assert rollout_reward({"right": RewardSpec()}, rewards, None) == 1.0


async def test_tampering_is_a_zero_that_counts_whatever_the_scores_say():
    rewards = await compute_rewards(Verdict(scores={"right": 1.0}, tampering=["wrote the report"]), right=1, short=1)
    trajectory = Trajectory(trajectory_id="t-0", rewards=rewards)

    assert [(one.name, one.score, one.status) for one in rewards] == [
        ("right", 0.0, "tampering"),
        ("short", 0.0, "tampering"),
    ]
    assert rollout_reward({"right": RewardSpec(), "short": RewardSpec()}, rewards, None) == 0.0
    assert [(alarm.kind, "wrote the report" in alarm.detail) for alarm in find_alarms(trajectory)] == [
        ("tampering", True)
    ]
    assert list(finding_kinds(rewards[0])) == ["tampering"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (ValueError("broke"), "verifier_error"),
        (SandboxError("sandbox: lost"), "infra_error"),
        (ModelCallError("full", 503), "infra_error"),
        (ModelCallError("no such model", 400), "verifier_error"),
        (Verdict(status="infra_error", scores={"reward": 1.0}), "infra_error"),
        (Verdict(scores={"reward": float("nan")}), "missing"),
        (None, "missing"),
        ("1", "missing"),
    ],
)
async def test_a_failure_is_null(answer, status):
    (reward,) = await compute_rewards(answer)

    assert (reward.score, reward.status) == (None, status)


@pytest.mark.parametrize("status", ["exited", "gone"])
async def test_a_lost_box_is_never_a_zero_and_every_box_is_closed(status):
    box = ScriptedBox(status)

    async def take_box(_):
        return box

    run = run_over(take_box=take_box)
    (reward,) = await run_scorer(InBox(), run, 5)

    assert (reward.score, reward.status) == ((1.0, "ok") if status == "exited" else (None, "infra_error"))
    assert box.is_closed
    assert (run.num_boxes, run.exec_seconds) == (1, 0.25)


async def test_a_box_that_cannot_be_made_is_never_a_zero():
    async def take_box(_):
        raise SandboxError("sandbox: none was ready; try again")

    (reward,) = await run_scorer(InBox(), run_over(take_box=take_box), 5)

    assert (reward.score, reward.status, reward.error) == (None, "infra_error", "sandbox: none was ready; try again")


async def test_without_sandboxes_or_a_gateway_the_error_says_so():
    with pytest.raises(BadInputError, match="none is to be had"):
        await run_over().sandbox()
    with pytest.raises(BadInputError, match="no gateway"):
        await run_over().ask([])
