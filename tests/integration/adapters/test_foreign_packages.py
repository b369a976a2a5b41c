"""verifiers, inspect_ai and OpenEnv themselves, each in an environment of its own: our scores are theirs."""

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from agent_layer.errors import BadInputError
from agent_layer.infra.processes.addresses import free_port
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.schema import Action, Step, Trajectory
from agent_layer.store import open_store
from envs.adapters.foreign_process import close_foreign
from envs.adapters.foreign_set import ForeignScorer, _Replay, open_inspect, open_verifiers
from envs.adapters.openenv import OpenEnvEnvironment, OpenEnvSet
from envs.env_context import AttemptContext, ToolCall, ToolCalls
from envs.grading import ScoringRun

from ...examining import examine_here
from ...waiting import run, wait_until_ready

FOREIGN = Path(__file__).parent / "foreign"
ADAPTERS = Path(os.environ.get("AGENT_LAYER_ADAPTERS_DIR", Path(sys.prefix, "adapters")))
NUM_RECORDED = 50

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def require(name):
    if not (ADAPTERS / name / "bin" / "python").exists():
        pytest.skip(f"no {name} in {ADAPTERS}: 'make test-all' installs it")
    return ADAPTERS / name / "bin" / "python"


@pytest.fixture(scope="module", autouse=True)
def foreign_folder():
    """The task sets of this folder, for processes that last as long as this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_LAYER_ADAPTERS_DIR", str(ADAPTERS))
        patch.chdir(FOREIGN)
        yield
    close_foreign()


def call(name, /, call_id="c0", **arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def text(content):
    return {"role": "assistant", "content": content}


def answer_sum(drawn, task):
    right = task.grading.get("answer") or task.grading.get("target")
    return [text(drawn.choice([right, f"The answer is {right}", f"{right}.", "", f"-{right}", f"{right} or 7", "7"]))]


def answer_letter(drawn, task):
    return [text(drawn.choice(["ANSWER: A", "ANSWER: B", "answer: c", "D", f"ANSWER: {task.grading['target']}", ""]))]


def answer_guess(drawn, task):
    hidden = task.grading["hidden"]
    guesses = [str(drawn.randrange(16)) for _ in range(drawn.randrange(4))]
    guesses = [one for one in guesses if one != str(hidden)]
    return [text(one) for one in [*guesses, drawn.choice([str(hidden), "give up"])]]


def answer_shop(drawn, task):
    items = [drawn.choice(["tea", "milk", "nothing"]) for _ in range(drawn.randrange(3))]
    calls = [
        {"role": "assistant", "content": None, "tool_calls": [call("price", f"c{n}", item=one)]}
        for n, one in enumerate(items)
    ]
    right = task.grading.get("answer") or task.grading.get("target")
    return [*calls, text(drawn.choice([str(right), "I do not know"]))]


SETS = {
    "verifiers:sums_v1": answer_sum,
    "verifiers:guess_v1": answer_guess,
    "verifiers:shop_v1": answer_shop,
    "inspect:inspect_tasks.py@sums": answer_sum,
    "inspect:inspect_tasks.py@letters": answer_letter,
    "inspect:inspect_tasks.py@shop": answer_shop,
}


def open_set(name):
    package, _, rest = name.partition(":")
    return {"verifiers": open_verifiers, "inspect": open_inspect}[package](rest)


async def score(task, messages, ask_judge=None):
    steps = [
        Step(trajectory_id="t", call_id=str(place), choice=0, run="r", started_at=place, action=Action(message=one))
        for place, one in enumerate(messages)
    ]
    run_ = ScoringRun(task, Trajectory(trajectory_id="t", steps=steps), None, ask_judge=ask_judge)
    return await ForeignScorer().score(run_)


@pytest.mark.parametrize("name", SETS)
async def test_our_scores_of_recorded_answers_are_those_of_the_packages_own_runner(name, tmp_path):
    package, _, identity = name.partition(":")
    python, drawn = require(package), random.Random(name)
    tasks = [task for split in ("train", "eval") for task in open_set(name).tasks(split=split)][:NUM_RECORDED]
    recorded = {task.input["index"]: SETS[name](drawn, task) for task in tasks}
    file = tmp_path / "recorded.json"
    file.write_text(json.dumps({"id": identity, "answers": recorded}))
    own = run([python, FOREIGN / f"{package}_runner.py", file], 900, cwd=FOREIGN)
    assert own.returncode == 0, own.stderr[-3000:]
    theirs = json.loads(own.stdout.splitlines()[-1])

    verdicts = await asyncio.gather(*(score(task, recorded[task.input["index"]]) for task in tasks))

    ours = {str(task.input["index"]): verdict for task, verdict in zip(tasks, verdicts, strict=True)}
    assert {verdict.status for verdict in verdicts} == {"ok"}
    for index, verdict in ours.items():
        if package == "verifiers":
            assert theirs[index].pop("left") == 0
            reward, parts, metrics = (theirs[index][field] for field in ("reward", "parts", "metrics"))
            assert verdict.scores == pytest.approx({**metrics, **parts, "reward": reward}), recorded[int(index)]
        else:
            assert {key: one for key, one in verdict.scores.items() if key != "reward"} == theirs[index]
            assert verdict.scores["reward"] == next(iter(theirs[index].values()))
    if len(tasks) > 10:
        assert len({verdict.scores["reward"] for verdict in verdicts}) > 1, "the recorded answers teach nothing"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("verifiers:boxed_v1", "its tasks need a container"),
        ("verifiers:duel_v1", r"played by 2 agents \(white, black\)"),
        ("verifiers:nowhere", "No module named 'nowhere'; install it into .*verifiers"),
        ("verifiers:needy_v1", "No module named 'no_such_package_for_tests'; install it into .*verifiers"),
        ("verifiers:old_v0", "API before 0.4, with load_environment, is not carried"),
        ("verifiers:old_game_v0", "no attribute 'MultiTurnEnv'; a set of the API before 0.4"),
        ("verifiers:sums_v1?nmu=3", "nmu"),
        ("inspect:inspect_tasks.py@boxed", r"needs a sandbox \(docker\)"),
        ("inspect:inspect_tasks.py", "expected one task, found"),
        ("inspect:nowhere.py@x", "nowhere"),
        ("inspect:inspect_tasks.py@sums?fcator=5", "takes no argument fcator"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name(name, why):
    require(name.partition(":")[0])
    with pytest.raises(BadInputError, match=why):
        next(open_set(name).tasks(split="train"))


async def test_an_environment_that_plays_a_task_twice_is_refused_when_it_is_played():
    require("verifiers")
    (task,) = open_verifiers("twice_v1").tasks(split="train")
    with pytest.raises(BadInputError, match="plays a task 2 times, and an attempt holds one"):
        await score(task, [text("a"), text("b")])


async def test_options_change_the_tasks_and_judges_are_asked_through_the_context():
    require("verifiers")
    tasks = list(open_verifiers("sums_v1?num=7&factor=5").tasks(split="train"))
    assert [task.input["messages"][-1]["content"] for task in tasks[:2]] == ["What is 0 + 0?", "What is 1 + 5?"]
    assert len(tasks) == 6

    async def ask_judge(messages, _sampling):
        return "A" if messages[-1]["content"].endswith("Thanks!") else "B"

    (task, *_) = open_verifiers("judged_v1").tasks(split="train")
    assert (await score(task, [text("Thanks!")], ask_judge)).scores == {"polite": 1.0, "reward": 1.0}
    assert (await score(task, [text("No.")], ask_judge)).scores == {"polite": 0.0, "reward": 0.0}


async def test_the_gate_passes_a_good_set():
    require("verifiers")
    report = await examine_here("verifiers:exact_v1", count=2)
    assert report.failures == []
    assert report.counts["mutants"][1] >= 20


def answer_words(prompt):
    """Solve each second task of ``exact_v1``; buy before answering in ``shop_v1``; halve in a game."""
    messages = [str(one.get("content")) for one in prompt.messages]
    if prompt.tools and not any(one["role"] == "tool" for one in prompt.messages):
        return {"content": None, "tool_calls": [call("price", item="tea")]}
    spelled = messages[0].partition(": ")[2]
    word = "".join(reversed(spelled.split("-")))
    if prompt.tools:
        return str(2 * int(messages[-1]))
    return word if word[-1:] in "02468" else "no idea"


def evaluate(settings, folder, *words, answer):
    with serve_in_thread(ScriptedEngine(script=answer)) as engine:
        command = [sys.executable, "-m", "agent_layer.cli", "eval", *words, "--model", f"{engine.url}/v1"]
        variables = os.environ | settings.environment() | {"AGENT_LAYER_ADAPTERS_DIR": str(ADAPTERS)}
        done = run([*command, "-n", "1", "--round", "r", "--format", "jsonl"], 600, cwd=folder, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    store = open_store(settings)
    return [store.get(row.trajectory_id) for row in store.query(run="eval.r", limit=100, order="oldest").items]


@pytest.mark.parametrize(("name", "limit", "num_steps"), [("verifiers:exact_v1", 16, 1), ("verifiers:shop_v1", 3, 2)])
def test_the_policys_answers_go_through_the_gateway_and_are_graded_from_the_store(settings, name, limit, num_steps):
    require("verifiers")
    found = evaluate(
        settings, FOREIGN, "envs.adapters.foreign_set:play", name, "--limit", str(limit), "--split", "train",
        answer=answer_words,
    )  # fmt: skip

    assert len(found) == limit
    scores = set()
    for trajectory in found:
        (reward,) = [one for one in trajectory.rewards if one.name == "reward"]
        reply = trajectory.steps[-1].action.message["content"]
        known = trajectory.started.task.grading["answer"]
        assert (reward.source, reward.score) == ("verifier", float(known in reply)), reply
        assert [bool(one.action.response_token_ids) for one in trajectory.steps] == [True] * num_steps
        scores.add(reward.score)
    assert scores == {0.0, 1.0}
    replay = _Replay(found[0].steps)
    asyncio.run(replay.play(found[0].started.task.input))
    assert (replay.drift, replay._is_comparable) == (None, True)


@contextlib.contextmanager
def serve_openenv(kind, folder):
    """Serve a world of ``openenv_server.py``; yields its address."""
    port = free_port()
    with (folder / f"{kind}.out").open("wb") as out:
        server = subprocess.Popen(
            [require("openenv"), FOREIGN / "openenv_server.py", kind, str(port)], stdout=out, stderr=out
        )

    def is_ready():
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health").status == 200
        return False

    try:
        wait_until_ready(server, is_ready, 180, log=(folder / f"{kind}.out").read_text)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def record_game(drawn, _tools):
    return [str(drawn.randrange(16)) for _ in range(drawn.randrange(1, 6))]


def record_shopping(drawn, _tools):
    return [
        {"item": drawn.choice(["tea", "milk", "x"]), "number": drawn.randrange(1, 4)}
        for _ in range(drawn.randrange(1, 5))
    ]


@pytest.mark.parametrize(("kind", "record"), [("game", record_game), ("tools", record_shopping)])
async def test_our_rewards_in_a_world_of_openenv_are_those_of_its_own_client(kind, record, tmp_path):
    drawn = random.Random(kind)
    with serve_openenv(kind, tmp_path) as url:
        tasks = list(OpenEnvSet(f"{url}?level=2").tasks(split="train", count=NUM_RECORDED))
        actions = [record(drawn, kind == "tools") for _ in tasks]
        wire = [
            [
                {"guess": one} if kind == "game" else {"type": "call_tool", "tool_name": "buy", "arguments": one}
                for one in some
            ]
            for some in actions
        ]
        file = tmp_path / "recorded.json"
        file.write_text(
            json.dumps([{"reset": t.input["reset"], "actions": w} for t, w in zip(tasks, wire, strict=True)])
        )
        own = run([require("openenv"), FOREIGN / "openenv_runner.py", url, file], 300)
        assert own.returncode == 0, own.stderr[-3000:]
        theirs = json.loads(own.stdout.splitlines()[-1])

        played = [await play_world(task, some) for task, some in zip(tasks, actions, strict=True)]

    assert played == pytest.approx(theirs)
    assert len(set(theirs)) > 3


async def play_world(task, actions):
    context = AttemptContext(task=task.view(), seed=0, clock=time.time, find_sandbox=lambda: None)
    world, total = OpenEnvEnvironment(context), 0.0
    await world.reset(task)
    for one in actions:
        action = (
            one if isinstance(one, str) else ToolCalls(text="", calls=[ToolCall(id="c", name="buy", arguments=one)])
        )
        stepped = await world.step(action)
        total += stepped.reward or 0.0
        if stepped.done:
            break
    await world.close()
    return total


def test_a_model_plays_a_world_of_openenv(settings, tmp_path):
    def halve(prompt):
        low, high = 0, 15
        for turn, answered in zip(prompt.messages[1::2], prompt.messages[2::2], strict=False):
            number = int(turn["content"])
            low, high = (number + 1, high) if answered["content"] == "higher" else (low, number - 1)
        return str((low + high) // 2)

    with serve_openenv("game", tmp_path) as url:
        found = evaluate(
            settings, tmp_path, "envs.adapters.openenv:OpenEnvEnvironment", f"openenv:{url}", "--limit", "4",
            "--split", "train", answer=halve,
        )  # fmt: skip
    for trajectory in found:
        (reward,) = [one for one in trajectory.rewards if one.name == "reward"]
        assert reward.score == 1.0 - 0.125 * (len(trajectory.steps) - 1)
