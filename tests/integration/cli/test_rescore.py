"""Rescoring: a scorer's result supersedes the earlier one; a failure of the scorer changes nothing."""

import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest
from hypothesis import given, strategies as st

from agent_layer.cli.main import build
from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.recorder import open_recorder
from agent_layer.schema.reward import Reward, current_rewards
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.task import RewardSpec, Task
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store import open_store
from envs.rescoring.rescore import RescoreOptions, rescore_trajectory

from ...builders import closed_group
from ...stored import write_segment
from ...waiting import communicate, wait_until


def make_stored_attempt(
    number, score=0.0, *, run="r", status="completed", cause=None, rewards=("correct",), group=None, **about
):
    tid = f"{run}{number}.0-0"
    own = {"trajectory_id": tid, "run": run}
    specs = {name: RewardSpec() for name in rewards}
    task = Task(id=f"t{number}", run=run, input=number, grading=2 * number, rewards=specs)
    yield AttemptStarted(
        **own,
        rollout_id=tid[:-2],
        attempt=0,
        task_id=task.id,
        started_at=100.0 + number,
        rewards=specs,
        task=task,
        group_id=group,
    )
    yield Reward(**own, reward_id=f"{tid}/r", at=200.0, name=(*rewards, "reward")[0], score=score, **about)
    if status != "running":
        yield Outcome(**own, status=status, ended_at=300.0, cause=cause, result={"said": number})
        yield Accepted(**own, rollout_id=tid[:-2], accepted_at=301.0)


@pytest.fixture
def store(settings):
    return open_store(settings)


@pytest.fixture
def put(store):
    """``put(*records)``: stores and indexes them."""
    return partial(write_segment, store)


_modules = itertools.count()


@pytest.fixture
def scorer(write_module):
    """``scorer("return 1.0")``: the name of a scorer with this body, in a file of its own."""

    def write(body):
        name = f"late_scorer_{next(_modules)}"
        write_module(name, f"import asyncio, os, time\n\nasync def score(task, trajectory, result):\n    {body}\n")
        return f"{name}:score"

    return write


@pytest.fixture
def rescore(settings, monkeypatch, capsys):
    """``rescore(scorer, *options)`` returns what the command prints."""
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)

    def run(*arguments):
        build()(["rescore", *arguments], standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_a_scorer_sees_task_grading_and_result_and_what_it_says_supersedes(store, put, scorer, rescore):
    put(*make_stored_attempt(1), *make_stored_attempt(2), *make_stored_attempt(3, run="other"))

    name = scorer("return float(task.grading == 2 * result['said'])")
    message = rescore(name, "--run", "r")

    assert "judged 2, changed 2" in message
    assert "mean reward 0 (of 2) → 1 (of 2)" in message
    assert "r1.0-0  0 → 1" in message
    old, new = store.get("r1.0-0").rewards
    assert (new.name, new.score, new.source, new.supersedes) == ("correct", 1.0, "verifier", old.reward_id)
    assert (new.scorer, new.verifier_hash is not None) == (name, True)
    assert [row.trajectory_id for row in store.query(reward=(1, 1)).items] == ["r2.0-0", "r1.0-0"]
    assert store.row("other3.0-0").reward == 0.0


def test_the_mean_of_huge_rewards_is_one(put, scorer, rescore):
    put(*make_stored_attempt(1, 1.7e308), *make_stored_attempt(2, 1.7e308))

    message = rescore(scorer("return -1.7e308"))

    assert "mean reward 1.7e+308 (of 2) → -1.7e+308 (of 2)" in message


def test_the_same_scorer_judges_once_and_a_changed_one_again(store, put, scorer, rescore):
    put(*make_stored_attempt(1), *make_stored_attempt(2))
    first, second = scorer("return 0.5"), scorer("return 0.7")

    assert "judged 2, changed 2" in rescore(first)
    assert "judged 0" in (again := rescore(first))
    assert "2 were judged by this version of the scorer before" in again
    assert "judged 2, changed 2" in rescore(second)
    assert "judged 2, changed 2" in rescore(first)  # its earlier score was superseded
    assert [one.score for one in store.get("r1.0-0").rewards] == [0.0, 0.5, 0.7, 0.5]
    assert store.row("r1.0-0").reward == 0.5


def test_a_scorer_that_fails_changes_nothing_and_is_tried_again(store, put, scorer, rescore, tmp_path):
    put(*make_stored_attempt(1, 0.25), *make_stored_attempt(2, 0.25))
    name = scorer(f"return 1.0 if result['said'] == 2 or os.path.exists({str(tmp_path / 'mended')!r}) else 1 / 0")

    with pytest.raises(AgentFailedError, match=r"1 of the trajectories could not be scored.*ZeroDivisionError"):
        rescore(name)

    failed = store.get("r1.0-0").rewards[-1]
    assert (failed.status, failed.score, failed.void, failed.supersedes) == ("verifier_error", None, True, None)
    assert (store.row("r1.0-0").reward, store.row("r2.0-0").reward) == (0.25, 1.0)
    (tmp_path / "mended").touch()
    assert "judged 1, changed 1" in rescore(name)
    assert store.row("r1.0-0").reward == store.get("r1.0-0").reward == 1.0


def test_a_scorer_without_a_judgement_changes_nothing(store, put, scorer, rescore):
    put(*make_stored_attempt(1, 0.25, rewards=("correct", "style")))
    partly, none = scorer("return {'style': 0.5}"), scorer("return None")

    assert "judged 1, changed 1" in rescore(partly)
    assert store.row("r1.0-0").reward == 0.75
    assert "judged 1, changed 0" in rescore(none)
    assert "judged 0" in rescore(none)
    assert store.row("r1.0-0").reward == 0.75


def test_a_dry_run_keeps_nothing(store, put, scorer, rescore):
    put(*make_stored_attempt(1))

    message = rescore(scorer("return 1.0"), "--dry-run")

    assert "judged 1, changed 1 (nothing was kept)" in message
    assert len(store.get("r1.0-0").rewards) == 1


def test_one_reward_can_be_judged_alone(store, put, scorer, rescore):
    put(*make_stored_attempt(1, 0.25, rewards=("correct", "style")))

    rescore(scorer("return {'style': 0.5, 'correct': 9.0}"), "--name", "style")

    assert {one.name: one.score for one in store.get("r1.0-0").rewards} == {"correct": 0.25, "style": 0.5}


def test_what_a_person_said_is_left_to_people(settings, store, put, scorer, rescore):
    put(*make_stored_attempt(1), *make_stored_attempt(2))
    store.reward("r1.0-0", 0.9, name="correct")
    assert open_recorder(settings).flush().pending == 0

    rescore(scorer("return 0.1"))

    assert (store.row("r1.0-0").reward, store.row("r2.0-0").reward) == (0.9, 0.1)


def test_a_failed_verifier_is_made_good(store, put, scorer, rescore):
    put(*make_stored_attempt(1, None, status="completed", cause="verifier", source="verifier"))
    assert store.row("r1.0-0").reward is None

    assert "mean reward null → 0.5 (of 1)" in rescore(scorer("return 0.5"))

    assert store.row("r1.0-0").reward == 0.5


def test_what_has_not_ended_is_left_alone_and_undeclared_rewards_are_not_counted_twice(store, put, scorer, rescore):
    put(*make_stored_attempt(1, status="running"), *make_stored_attempt(2, 0.0, rewards=()))

    assert "1 have not ended" in rescore(scorer("return {'a': 1.0, 'b': 2.0}"), "--any")

    assert store.row("r1.0-0").reward == 0.0
    assert store.row("r2.0-0").reward == 3.0


def test_the_agent_is_no_scorer_of_what_has_ended(rescore):
    with pytest.raises(BadInputError, match="'agent' is no scorer"):
        rescore("agent")


def counted(store, num):
    return [Counter(one.score for one in store.get(f"r{n}.0-0").rewards if one.supersedes) for n in range(num)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_rescoring_that_was_ended_goes_on_where_it_was(store, settings, put, scorer, rescore, number):
    num = 20
    put(*itertools.chain.from_iterable(make_stored_attempt(n) for n in range(num)))
    stuck, mended = "60 if task.input % 10 == 9 else 0.05", settings.dir / "mended"  # two of these hold up both slots
    name = scorer(f"await asyncio.sleep(0 if os.path.exists({str(mended)!r}) else {stuck}); return 1.0")
    command = [sys.executable, "-m", "agent_layer.cli", "rescore", name, "--slots", "2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    wait_until(lambda: process.poll() is not None or len(store.query(reward=(1, 1)).items) >= 4)
    process.send_signal(number)
    output, errors = communicate(process)
    assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130), errors
    assert number == signal.SIGKILL or "the same command goes on from here" in output

    mended.touch()
    rescore(name, "--run", "r")
    wait_until(
        lambda: not any(path.stat().st_size for path in settings.log_dir.glob("*-*.log")), what="all to be shipped"
    )
    assert counted(store, num) == [Counter({1.0: 1})] * num


def write_scorer(verdict):
    async def score(*_):
        if verdict == "fails":
            raise OSError("away")
        return verdict

    return score


verdicts = st.none() | st.floats(-1, 1) | st.just("fails")


@given(st.lists(st.tuples(st.sampled_from(["v1", "v2", "person"]), verdicts), max_size=6))
async def test_the_last_scorer_that_had_something_to_say_stands_unless_a_person_did(message):
    """In any history of scorers and people nothing is lost, null never replaces a score, and people's rewards stay."""
    trajectory = assemble_trajectory("r1.0-0", list(make_stored_attempt(1, 0.25)))
    expected, is_human = 0.25, False
    records = list(make_stored_attempt(1, 0.25))
    for number, (who, verdict) in enumerate(message):
        if who == "person":
            (standing,) = current_rewards(trajectory.rewards)
            value = verdict if isinstance(verdict, float) else 0.0
            records.append(
                Reward(
                    trajectory_id="r1.0-0",
                    reward_id=f"p{number}",
                    run="r",
                    at=1e9 + number,
                    name="correct",
                    score=value,
                    source="human",
                    supersedes=standing.reward_id,
                )
            )
            expected, is_human = value, True
        else:
            _, rewards = await rescore_trajectory(
                trajectory, RescoreOptions(scorer=write_scorer(verdict), verifier_hash=who, seconds=60)
            )
            records += rewards
            expected = verdict if isinstance(verdict, float) and not is_human else expected
        trajectory = assemble_trajectory("r1.0-0", records)
        assert trajectory.reward == expected
    assert len(trajectory.rewards) == len({one.reward_id for one in records if isinstance(one, Reward)})


def test_a_scorer_of_groups_compares_the_attempts_of_closed_groups(store, put, rescore, write_module):
    put(*make_stored_attempt(1, group="g"), *make_stored_attempt(2, group="g"), *make_stored_attempt(3))
    put(closed_group("g", "r1.0-0", "r2.0-0"))
    write_module(
        "late_ranking",
        "class Ranks:\n"
        "    async def score_group(self, contexts):\n"
        "        order = sorted(context.result['said'] for context in contexts)\n"
        "        return [float(order.index(context.result['said'])) for context in contexts]\n",
    )

    message = rescore("late_ranking:Ranks", "--run", "r")

    assert "judged 2, changed 1" in message
    assert "1 have not ended" in message
    assert [store.row(f"r{number}.0-0").reward for number in (1, 2, 3)] == [0.0, 1.0, 0.0]
    assert "judged 0" in rescore("late_ranking:Ranks", "--run", "r")
