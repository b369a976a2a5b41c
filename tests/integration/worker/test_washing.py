"""Nothing that a policy has run turns its zero into null, and nothing that the machine does turns null into a zero."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from agent_layer.schema import SELF_INFLICTED, Limits
from envs.sandbox import Resources, SandboxSpec
from envs.tasksets.repair import Repair, RepairEnvironment

from ...boxes import require_kind
from ...waiting import scaled, until, within
from ..sandbox.leftovers import find_by_argument, list_descendants
from ..sandbox_attempts.conftest import read_stored
from .conftest import RUN, make_client, make_task, open_harness, tool_call
from .washing import QUICK, SAFE_ON_HOSTS, WAYS

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESOURCES = Resources(memory_mb=64, disk_mb=16, processes=40, files=512)
SECONDS = 2.0
"""Limit of each command."""
SCORER = """
from agent_layer.errors import SandboxError

async def score(task, trajectory, result):
    return 1.0 if result == "42" else 0.0

class RunsTwice:
    '''Runs what is judged, then looks at it again, as scorers of tests do.'''

    async def score(self, context):
        box = await context.sandbox()
        if context.artifacts is not None:
            await box.restore(context.artifacts)
        await box.write("given", b"x")
        await box.exec(["python3", "-c", context.result], seconds=2)
        await box.read("given")
        await box.exec(["true"], seconds=2)
        return 1.0 if await read(box) == "42" else 0.0

class WaitsForIt:
    async def score(self, context):
        await (await context.sandbox()).exec(["python3", "-c", context.result], seconds=600)

class Holds:
    async def score(self, context):
        await (await context.sandbox()).exec(["sh", "-c", "sleep 5; exit 0", "held-by-scorer"], seconds=600)
        return 1.0

class Errs:
    async def score(self, context):
        box = await context.sandbox()
        await box.read(".") if context.result == "untouched" else None
        await box.exec(["true"])
        await box.read("/usr/bin")

async def read(box):
    try:
        return (await box.read("answer")).decode(errors="replace")
    except FileNotFoundError:
        return ""
"""


def kinds(*names):
    return [pytest.param(name, marks=() if name == "namespace" else pytest.mark.long) for name in names]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(module_settings):
    async with open_harness(module_settings) as harness:
        yield harness


@pytest.fixture(scope="module", autouse=True)
def _scorers(write_shared_module):
    folder = write_shared_module("washing_scorers", SCORER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        yield


async def act(view, rollout):
    """Run the way of a task, as an agent that looks at no status, and return what it left."""
    box = rollout.sandbox
    await box.write("given", b"x")
    await box.exec(["python3", "-c", WAYS[view.id.rpartition(".")[2]]], seconds=SECONDS)
    await box.write("note", b"x" * 1000)
    await box.exec(["true"])
    await box.read("given")
    try:
        return (await box.read("answer")).decode(errors="replace")
    except FileNotFoundError:
        return None


async def hold(view, rollout):
    """Keep the way running in the background, as an agent with a shell, and use the box meanwhile."""
    box = rollout.sandbox
    async with box.open(["python3", "-c", "print(flush=True)\n" + WAYS[view.id.rpartition(".")[2]]]) as process:
        await process.stdout.readline()
        await asyncio.sleep(SECONDS)
        await box.write("note", b"x" * 1000)
        await box.exec(["true"], seconds=SECONDS)


async def leave(view, rollout):
    """Run the way, and have its files judged."""
    await rollout.sandbox.exec(["python3", "-c", WAYS[view.id.rpartition(".")[2]]], seconds=SECONDS)
    return "pass"


async def return_way(view, _rollout):
    return WAYS[view.id.rpartition(".")[2]]


async def play(harness, agent, kind, names, scorer="score"):
    """Play each way once; return how each ended, as status, cause and reward."""
    require_kind(kind)
    names = [name for name in names if kind != "process" or name in SAFE_ON_HOSTS]
    spec = SandboxSpec(kind=kind, resources=RESOURCES)
    tasks = [
        make_task(
            f"{agent.__name__}.{kind}.{name}", sandbox=spec, artifacts=["answer"], scorer=f"washing_scorers:{scorer}"
        )
        for name in names
    ]
    async with harness.worker(agent, slots=4):
        states = await harness.wait(await harness.submit(*tasks))
    found = [await read_stored(harness, task, state) for task, state in zip(tasks, states, strict=True)]
    return {
        name: [(one.outcome.status, one.outcome.cause, one.reward, one.outcome.error) for one in tries]
        for name, tries in zip(names, found, strict=True)
    }


def find_washed(played):
    """Ways by which a zero became something else."""
    return {name: tries for name, tries in played.items() if [one[2] for one in tries] != [0.0]}


LONG = pytest.mark.long


@pytest.mark.parametrize("names", [QUICK, pytest.param([*WAYS], marks=LONG)], ids=["quick", "all"])
@pytest.mark.parametrize("kind", kinds("namespace", "session", "oci", "process"))
async def test_a_command_washes_no_zero(harness, kind, names):
    assert find_washed(await play(harness, act, kind, names)) == {}


@LONG
@pytest.mark.parametrize("kind", kinds("namespace", "session", "oci"))
async def test_what_runs_beside_the_agent_washes_no_zero(harness, kind):
    names = ["memory_steered", "kernel_tcp_sockets_steered", "fork_bomb", "thread_bomb", "disk", "files", "output"]

    if kind == "namespace":
        names.insert(0, "stop_all")

    assert find_washed(await play(harness, hold, kind, names if kind != "namespace" else names[:4])) == {}


@LONG
@pytest.mark.parametrize("fault", ["its own", "scorer", "untouched", "NUL"])
async def test_a_scorer_that_fails_is_at_fault_unless_what_it_judges_led_to_that(harness, fault):
    require_kind("namespace")

    async def agent(_view, rollout):
        if fault == "NUL":
            await rollout.sandbox.exec(["sh", "-c", "\0"])
            await rollout.sandbox.exec(["sh", "-c", "\ud800"])
        return WAYS["sleep"] if fault == "its own" else fault

    scorer = {"its own": "WaitsForIt", "NUL": "score"}.get(fault, "Errs")
    task = make_task(
        f"scored-{fault.replace(' ', '-')}",
        sandbox=SandboxSpec(kind="namespace", resources=RESOURCES),
        scorer=f"washing_scorers:{scorer}",
        limits=Limits(score_seconds=scaled(2.0)),
    )
    async with harness.worker(agent):
        (state,) = await harness.wait(await harness.submit(task))

    assert (await read_stored(harness, task, state))[-1].reward == (0.0 if fault in ("its own", "NUL") else None)


@pytest.mark.parametrize("names", [QUICK[:3], pytest.param([*WAYS], marks=LONG)], ids=["quick", "all"])
@pytest.mark.parametrize("kind", kinds("namespace", "session", "oci", "process"))
async def test_judged_code_washes_no_zero_in_the_box_of_its_scorer(harness, kind, names):
    assert find_washed(await play(harness, return_way, kind, names, scorer="RunsTwice")) == {}


@LONG
@pytest.mark.parametrize("kind", kinds("namespace", "session", "oci"))
async def test_files_that_are_left_wash_no_zero(harness, kind):
    names = ["answer_is_a_folder_of_many", "answer_is_a_pipe", "answer_is_long", "disk_sparse", "workdir_closed"]

    assert find_washed(await play(harness, leave, kind, names, scorer="RunsTwice")) == {}


@LONG
@pytest.mark.parametrize("kind", kinds("namespace", "session", "oci"))
async def test_a_model_washes_no_zero_by_the_tools_of_repair(harness, kind):
    require_kind(kind)
    names = ["memory_steered", "kernel_tcp_sockets_steered", "fork_bomb", "files", "disk", "output", "kill_all"]
    names += ["kill_server", "stop_all", "sleep", "workdir_removed", "given_removed"]
    drawn = {task.input["prompt"]: task for task in Repair().tasks(split="train", seed=len(kind), level=1, count=60)}
    tasks = [
        replace(task, run=RUN, sandbox=replace(task.sandbox, kind=kind, resources=RESOURCES)) for task in drawn.values()
    ][: len(names)]  # the prompt of each tells which it is
    ways = {task.input["prompt"]: (task.artifacts[0], WAYS[name]) for task, name in zip(tasks, names, strict=True)}

    def play_way(prompt):
        """Put the way into the module that the tests import, and run them: the scorer imports it too."""
        texts = " ".join(str(one.get("content")) for one in prompt.messages)
        (path, way), *_ = [way for request, way in ways.items() if request in texts]
        turns = [tool_call("write_file", path=path, content=way), tool_call("run_tests"), tool_call("list_files")]
        return {"tool_calls": turns[prompt.turn : prompt.turn + 1]} if prompt.turn < len(turns) else "repaired"

    harness.engine.script, before = play_way, harness.engine.script
    try:
        async with harness.worker(RepairEnvironment, slots=len(names)):
            states = await harness.wait(await harness.submit(*tasks))
    finally:
        harness.engine.script = before

    found = [await read_stored(harness, task, state) for task, state in zip(tasks, states, strict=True)]
    ends = dict(zip(names, [[(one.outcome.cause, one.reward) for one in tries] for tries in found], strict=True))
    assert {name: tries for name, tries in ends.items() if [one[1] for one in tries] != [0.0]} == {}
    assert all(tries[0].observations for tries in found)


async def spend(view, rollout):
    """Spend the time of the task as its input says; later attempts are right at once."""
    if rollout.attempt:
        return "42"
    match view.input["on"]:
        case "a command":
            await rollout.sandbox.exec(["sleep", "600"], seconds=600)
        case "commands":
            for _ in range(20):
                await rollout.sandbox.exec(["sleep", str(view.input["unit"])])
        case "its own":
            await asyncio.sleep(600)
        case "an engine":
            async with make_client() as client:
                await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hi"}])
    return None


POLICY, INFRA, USER = ("truncated", "policy", 0.0), ("lost", "infra", None), ("failed", "user", None)
TIMES = {
    ("a command", "auto"): POLICY,
    ("commands", "auto"): POLICY,
    ("its own", "auto"): USER,
    ("an engine", "auto"): INFRA,
    ("a command", "user"): USER,
    ("its own", "policy"): POLICY,
}


@LONG
async def test_the_end_of_time_is_the_fault_of_what_took_it(harness):
    require_kind("namespace")
    harness.engine.token_seconds = 600.0
    tasks = [
        make_task(
            f"time-{number}",
            sandbox=SandboxSpec(kind="namespace", resources=RESOURCES),
            scorer="washing_scorers:score",
            input={"on": on, "unit": scaled(2.0) / 10},
            limits=Limits(wall_seconds=scaled(2.0), wall_fault=fault),
        )
        for number, (on, fault) in enumerate(TIMES)
    ]
    try:
        async with harness.worker(spend, slots=len(tasks)):
            states = await harness.wait(await harness.submit(*tasks))
    finally:
        harness.engine.token_seconds = 0.0

    found = [(await read_stored(harness, task, state))[0] for task, state in zip(tasks, states, strict=True)]
    ends = [(one.outcome.status, one.outcome.cause, one.reward) for one in found]
    assert dict(zip(TIMES, ends, strict=True)) == TIMES
    assert [SELF_INFLICTED in one.outcome.findings for one in found] == [True, True, False, False, False, False]


async def test_a_command_that_runs_is_no_idle_agent(harness):
    require_kind("namespace")
    limits = Limits(idle_seconds=scaled(1.0))
    task = make_task("busy", sandbox=SandboxSpec(kind="namespace"), scorer="washing_scorers:score", limits=limits)

    async def agent(_view, rollout):
        await rollout.sandbox.exec(["sleep", str(3 * limits.idle_seconds)], seconds=600)

    async with harness.worker(agent):
        (state,) = await harness.wait(await harness.submit(task))

    (found,) = await read_stored(harness, task, state)
    assert (found.outcome.status, found.reward) == ("completed", 0.0)


def find_victims(fault, name):
    """Processes to kill: the parent of a box's command, the supervisor, or all below that."""
    below = list_descendants()
    (command,) = find_by_argument(below, name)
    (supervisor,) = find_by_argument(below, "envs.sandbox.supervisor")
    server = int(Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[1])
    return {"server": [server], "supervisor": [supervisor]}.get(fault) or list_descendants(supervisor)


@pytest.mark.parametrize("is_commanding", [True, pytest.param(False, marks=LONG)], ids=["commanding", "quiet"])
@pytest.mark.parametrize("kind", kinds("namespace", "session", "oci", "process"))
@pytest.mark.parametrize(
    "fault", ["server", *(pytest.param(name, marks=LONG) for name in ("all beneath the supervisor", "supervisor"))]
)
async def test_what_the_machine_does_is_no_zero(harness, kind, fault, is_commanding):
    require_kind(kind)
    name = f"{kind}-{fault.replace(' ', '-')}-{is_commanding}"
    task = make_task(name, sandbox=SandboxSpec(kind=kind, resources=RESOURCES), scorer="washing_scorers:score")
    is_up, is_seen, is_quiet = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def agent(_view, rollout):
        if rollout.attempt:
            return "42"
        async with rollout.sandbox.open(["sh", "-c", "echo; read x", name, ""]) as process:
            await process.stdout.readline()
            is_up.set()
            await is_seen.wait()
            if is_commanding:
                await process.wait()
        is_quiet.set()
        while True:  # a box that is lost is noticed when it is used
            await asyncio.sleep(0.2)
            await rollout.sandbox.exec(["true"])

    async with harness.worker(agent):
        groups = await harness.submit(task)
        async with within(60, "its command to run"):
            await is_up.wait()
        victims = find_victims(fault, name)
        is_seen.set()
        if not is_commanding:
            await is_quiet.wait()
        for one in victims:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        (state,) = await harness.wait(groups)

    first, *others = await read_stored(harness, task, state)
    assert (first.outcome.status, first.outcome.cause, first.reward) == INFRA
    assert [one.reward for one in others] == [1.0]


@LONG
async def test_a_killed_server_of_a_scorers_box_is_no_zero(harness):
    require_kind("namespace")
    task = make_task("held", sandbox=SandboxSpec(kind="namespace", resources=RESOURCES), scorer="washing_scorers:Holds")

    async def agent(_view, _rollout):
        return None

    async with harness.worker(agent):
        groups = await harness.submit(task)
        await until(lambda: find_by_argument(list_descendants(), "held-by-scorer"))
        for one in find_victims("server", "held-by-scorer"):
            os.kill(one, signal.SIGKILL)
        (state,) = await harness.wait(groups)

    assert [one.reward for one in await read_stored(harness, task, state)] == [1.0]
