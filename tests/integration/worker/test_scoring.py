"""Scoring of attempts: outside the agent, and never a zero for a failure of the scorer."""

import asyncio
import os
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np
import pytest

from agent_layer.schema.task import Limits, RewardSpec

from ...waiting import scaled
from .conftest import chat, make_client, make_task, open_harness

SCORERS = """
import asyncio, os, pathlib, time

HERE = pathlib.Path(__file__).parent

def count(task):
    with (HERE / f"tries-{task.id}").open("a") as tries:
        tries.write("x")
    return len((HERE / f"tries-{task.id}").read_text())

async def looks(task, trajectory, result):
    return {'right': task.grading == 'secret', 'turns': len(trajectory.steps), 'result': result}

async def strange(task, trajectory, result):
    return 10**400

async def shy(task, trajectory, result):
    return None

async def third_time(task, trajectory, result):
    if count(task) < 3:
        raise OSError("not yet")
    return 0.75

async def never(task, trajectory, result):
    count(task)
    raise OSError("no verifier")

async def hangs(task, trajectory, result):
    count(task)
    await asyncio.sleep(600)

async def pid(task, trajectory, result):
    (HERE / "scorer").write_text(str(os.getpid()))
    return float(len(trajectory.steps))

async def third_life(task, trajectory, result):
    if count(task) < 3:
        os._exit(5)
    return 0.75

async def blocks(task, trajectory, result):
    count(task)
    time.sleep(600)

async def lasts(task, trajectory, result):
    (HERE / "scorer").touch()
    await asyncio.sleep(600)
"""


@pytest.fixture
def judges(write_module):
    """The folder in which they lie."""
    return write_module("judges", SCORERS)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of one attempt for each scorer; the agent said that each was worth 100."""

    views: dict = field(default_factory=dict)
    """What the agent was shown, by task; not of those that never ran."""
    trajectories: dict = field(default_factory=dict)
    """By task, of those that count."""
    groups: dict = field(default_factory=dict)
    """By task, of those that count."""
    dead: dict = field(default_factory=dict)
    """Rollouts without such an attempt, by task."""
    tries: dict = field(default_factory=dict)
    """How often the scorer was asked, by task; not of those that do not count."""


@pytest.fixture(scope="module")
def ended(module_settings, write_shared_module):
    """One run for all tests that only look at how their attempt ended."""
    ended, folder = Ended(), write_shared_module("judges", SCORERS)
    write_shared_module("halting", "raise RuntimeError('no configuration')\n")
    named = ("looks", "strange", "shy", "third_time", "never")
    tasks = [make_task(name, scorer=f"judges:{name}", grading="secret") for name in named]
    tasks += [make_task("hangs", scorer="judges:hangs", limits=Limits(score_seconds=0.2))]
    tasks += [make_task("halting", scorer="halting:score"), make_task("nowhere", scorer="no:where")]

    async def run():
        async with open_harness(module_settings) as harness, make_client() as client:

            async def agent(view, rollout):
                ended.views[view.id] = view
                rollout.reward(100.0)
                return await chat(client, view, rollout)

            counting = [one for one in await harness.run(agent, *tasks) if one.accepted]
            groups = harness.dispatcher.groups([one.accepted.group_id for one in counting])
            ended.trajectories.update((one.task.id, one) for one in counting)
            ended.groups.update((one.task_id, one) for one in groups)
            ended.dead.update((one.rollout_id.partition(".")[0], one) for one in harness.dispatcher.dead())
            ended.tries.update((one.name[6:], len(one.read_text())) for one in folder.glob("tries-*"))

    asyncio.run(run())
    return ended


def test_the_scorer_sees_the_grading_and_the_stored_trajectory_and_the_agent_does_not(ended):
    assert "secret" not in repr(ended.views["looks"])
    assert ended.trajectories["looks"].reward == 1 + 2 + 0.5


def test_a_score_that_is_no_number_is_null(ended):
    assert ended.trajectories["strange"].reward is None


def test_what_a_scorer_leaves_open_is_null_whatever_the_agent_said(ended):
    trajectory = ended.trajectories["shy"]

    assert trajectory.reward is None
    assert (trajectory.rewards[-1].status, trajectory.outcome.cause) == ("missing", None)


def test_a_scorer_that_fails_twice_is_asked_a_third_time(ended):
    trajectory = ended.trajectories["third_time"]

    assert ended.tries["third_time"] == 3
    assert (trajectory.reward, trajectory.outcome.cause) == (0.75, None)


@pytest.mark.parametrize(("scorer", "status"), [("never", "verifier_error"), ("hangs", "timeout")])
def test_a_scorer_that_always_fails_gives_no_reward_rather_than_zero(ended, scorer, status):
    trajectory = ended.trajectories[scorer]

    assert ended.tries[scorer] == 3
    assert (trajectory.reward, trajectory.rewards[-1].status, trajectory.outcome.cause) == (None, status, "verifier")
    assert (ended.groups[scorer].num_accepted, ended.groups[scorer].num_usable) == (1, 0)


def test_a_scorer_that_does_not_import_ends_its_task_and_no_other(ended):
    assert "no configuration" in ended.dead["halting"].errors[0]
    assert len(ended.trajectories) == 6


def test_a_scorer_that_cannot_be_found_ends_the_rollout_before_the_agent_runs(ended):
    assert ended.dead["nowhere"].num_attempts == 1
    assert "no:where" in ended.dead["nowhere"].errors[0]
    assert "looks" in ended.views
    assert "nowhere" not in ended.views


async def test_a_scorer_runs_neither_with_the_agent_nor_with_the_worker(harness, task, judges, write_module):
    write_module("agents", "import os\n\nasync def agent(task, rollout):\n    return os.getpid()\n")

    (trajectory,) = await harness.run("agents:agent", task(), scorer="judges:pid")

    scorer = int((judges / "scorer").read_text())
    assert trajectory.reward == 0.0
    assert [(one.scorer, one.verifier_hash is not None) for one in trajectory.rewards] == [("judges:pid", True)]
    assert len({scorer, trajectory.outcome.result, os.getpid()}) == 3


@pytest.mark.long
async def test_a_scorer_whose_process_ends_twice_is_asked_a_third_time(harness, task, chatter, judges):
    (trajectory,) = await harness.run(chatter, task(scorer="judges:third_life"))

    assert (judges / "tries-t").read_text() == "xxx"
    assert (trajectory.reward, trajectory.outcome.cause) == (0.75, None)


@pytest.mark.usefixtures("judges")
async def test_a_scorer_that_blocks_its_process_makes_the_attempt_unusable(harness, task, chatter):
    hasty = replace(harness, settings=harness.settings.model_copy(update={"score_attempts": 1}))

    (trajectory,) = await hasty.run(chatter, task(scorer="judges:blocks", limits=Limits(score_seconds=0.2)))

    assert (trajectory.reward, trajectory.rewards[-1].status, bool(trajectory.accepted)) == (None, "timeout", True)


async def test_a_scorer_that_ends_its_process_when_imported_ends_no_task_of_another(
    harness, task, chatter, write_module
):
    write_module("deadly", "import os\n\nos._exit(3)\n")
    write_module("fair", "async def score(task, trajectory, result):\n    return 1.0\n")

    questions = [task(f"bad{number}", scorer="deadly:score") for number in range(3)]
    trajectories = await harness.run(
        chatter, *questions, *[task(f"good{number}", scorer="fair:score") for number in range(3)]
    )

    assert sorted((t.task.id, t.reward) for t in trajectories if t.accepted) == [(f"good{n}", 1.0) for n in range(3)]
    assert ["exit status 3" in dead.errors[0] for dead in harness.dispatcher.dead()] == [True] * 3


async def test_a_scorer_whose_import_does_not_end_ends_its_task(harness, task, chatter, write_module):
    write_module("endless", "import time\n\ntime.sleep(600)\n")
    hasty = replace(harness, settings=harness.settings.model_copy(update={"score_seconds": 0.3}))

    await hasty.run(chatter, task(scorer="endless:score"))

    assert "score_seconds (0.3)" in harness.dispatcher.dead()[0].errors[0]


async def test_out_of_turns_is_scored_as_it_stands(harness, task, chatter):
    rewards = {"found": RewardSpec(), "style": RewardSpec()}

    async def agent(view, rollout):
        rollout.reward(0.25, name="style")
        await chatter(view, rollout)

    (trajectory,) = await harness.run(agent, task(limits=Limits(turns=1), rewards=rewards))

    assert (trajectory.outcome.status, trajectory.outcome.cause) == ("truncated", "policy")
    assert trajectory.reward == 0.25
    assert len(trajectory.steps) == 1


async def test_the_time_that_reading_takes_is_not_the_scorers(harness, task, chatter, write_module):
    limits = Limits(score_seconds=scaled(0.3))
    seconds = limits.score_seconds + 2.3  # longer than a scorer that blocks its process may take
    write_module(
        "far",
        "import time\n"
        "from agent_layer.store.store import Store\n"
        "get = Store.get\n"
        f"Store.get = lambda *asked: time.sleep({seconds}) or get(*asked)\n"
        "async def score(task, trajectory, result):\n    return 0.75\n",
    )

    (trajectory,) = await harness.run(chatter, task(scorer="far:score", limits=limits))

    assert (trajectory.reward, trajectory.outcome.cause) == (0.75, None)


@pytest.mark.long
async def test_a_reading_that_hangs_is_begun_again(harness, task, chatter, write_module):
    write_module(
        "hanging",
        "import pathlib, time\n"
        "from agent_layer.store.store import Store\n"
        "get, seen = Store.get, pathlib.Path(__file__).with_name('seen')\n"
        "def read(*asked):\n"
        "    if not seen.exists():\n        seen.touch()\n        time.sleep(600)\n"
        "    return get(*asked)\n"
        "Store.get = read\n"
        "async def score(task, trajectory, result):\n    return 0.75\n",
    )
    hasty = replace(harness, settings=harness.settings.model_copy(update={"start_seconds": scaled(2.0)}))

    (trajectory,) = await hasty.run(chatter, task(scorer="hanging:score"))

    assert (trajectory.reward, trajectory.outcome.cause) == (0.75, None)


@pytest.mark.long
async def test_a_scorer_that_cannot_be_imported_again_is_no_judgement(harness, task, chatter, write_module):
    write_module(
        "gone",
        "import os, pathlib\n"
        "seen = pathlib.Path(__file__).with_name('seen')\n"
        "if seen.exists():\n    raise RuntimeError('it is gone')\n"
        "seen.touch()\n"
        "async def score(task, trajectory, result):\n    os._exit(3)\n",
    )

    (trajectory,) = await harness.run(chatter, task(scorer="gone:score"))

    assert (trajectory.reward, trajectory.rewards[-1].status) == (None, "verifier_error")
    assert "it is gone" in trajectory.rewards[-1].error


async def test_an_attempt_whose_worker_ends_before_its_scorer_does_is_lost(harness, task, chatter, judges, until):
    settings = harness.settings.model_copy(update={"stop_seconds": 0.5})
    async with replace(harness, settings=settings).worker(chatter, scorer="judges:lasts"):
        groups = await harness.submit(task())
        await until((judges / "scorer").exists)

    outcome = await until(lambda: harness.store.get(f"{groups[0]}.0-0").outcome)
    assert (outcome.status, outcome.cause) == ("lost", "infra")
    (rollout,) = harness.dispatcher.rollouts(groups)
    assert (rollout.status, rollout.num_failures) == ("queued", 0)


async def test_an_agent_s_numbers_of_any_type_are_rewards_and_what_is_none_is_named(harness, task, chatter):
    returned = {
        "mean": np.mean([0, 1]),
        "flag": np.bool_(1),
        "decimal": Decimal("0.25"),
        "named": {"a": np.float32(0.5), "b": 1},
        "nan": np.float64("nan"),
        "text": "0.5",
        "own": "a text",
    }

    async def agent(view, rollout):
        await chatter(view, rollout)
        if view.id == "own":
            rollout.reward(0.75)
        return returned[view.id]

    questions = [task(name, rewards={"right": RewardSpec()} if name == "text" else {}) for name in returned]

    found = {one.started.task_id: one for one in await harness.run(agent, *questions)}

    rewards = {name: one.reward for name, one in found.items()}
    assert rewards == {"mean": 0.5, "flag": 1, "decimal": 0.25, "named": 1.5, "nan": None, "text": None, "own": 0.75}
    assert [found[name].rewards[0].status for name in ("nan", "text")] == ["missing", "missing"]
    assert "found nan of type float" in found["nan"].rewards[0].error
    assert "found '0.5' of type str" in found["text"].rewards[0].error
    assert found["flag"].outcome.result is True


BLOCKING = """
import asyncio, pathlib, time

HERE = pathlib.Path(__file__).parent


async def score(task, trajectory, result):
    (HERE / f"began-{task.id}").touch()
    while len(list(HERE.glob("began-*"))) < 8:  # all are in the process when one blocks it
        await asyncio.sleep(0.01)
    if task.id in ("slow0", "slow1"):
        (HERE / "blocked").touch()
        time.sleep(600)
    while not (HERE / "blocked").exists():
        await asyncio.sleep(0.01)
    return 0.5
"""


async def test_a_scorer_that_blocks_its_process_nulls_no_attempt_beside_it(harness, task, chatter, write_module):
    write_module("blocking", BLOCKING)
    names = ["slow0", "slow1", *(f"fast{number}" for number in range(6))]
    once = harness.settings.model_copy(update={"score_seconds": scaled(1.0), "score_attempts": 1})

    ran = await replace(harness, settings=once).run(chatter, *[task(name, scorer="blocking:score") for name in names])

    rewards = {one.started.task_id: (one.reward, one.rewards[-1].status) for one in ran}
    assert rewards == {name: (None, "timeout") if "slow" in name else (0.5, "ok") for name in names}
