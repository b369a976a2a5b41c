"""What runs now as the API tells it, against the dispatcher's own answers."""

import json
import os
import random
import shutil
from collections import Counter

import msgspec
import pytest

from agent_layer.dispatcher import Dispatcher, Report
from agent_layer.engines import Engine, EngineRegistry, register_policy
from agent_layer.infra.processes.owned_directories import hold_owned_directory
from agent_layer.schema import PolicyVersion
from agent_layer.schema.task import Task
from agent_layer.state import TakenSandbox, make_supervisor_directory, write_taken_sandboxes

from ...queues import Queue
from ...viewing import Viewed


def test_numbers_are_those_of_the_queue(fresh, redis, keys, settings):
    dice = random.Random(0)
    queue, dispatcher = Queue(redis, keys, settings, jitter=lambda: 1.0), Dispatcher(redis, settings)
    needs = [[], ["gpu"], ["gpu", "net"]]
    queue.add(
        Task(id=f"t{at}", run=f"r{at % 2}", group_size=dice.randrange(1, 4), needs=dice.choice(needs))
        for at in range(12)
    )
    queue.heartbeat("one", json.dumps({"offers": "gpu", "slots": 4, "held": 3, "agent": "a:b"}).encode(), [])
    queue.heartbeat("other", b"{}", [])
    for lease in queue.claim("one", 6, ["gpu"])[: dice.randrange(2, 5)]:
        queue.settle([Report(lease=lease, ending="dead", error=dice.choice(["infra: away", "agent: broke"]))])
    dispatcher.pause("r1", why="lunch")

    found, dead = fresh.get("/api/v1/queue"), fresh.get("/api/v1/dead")

    stats = dispatcher.stats()
    assert found["totals"] == {name: getattr(stats, name) for name in found["totals"]}
    held = [one for one in dispatcher.rollouts() if one.status == "leased"]
    assert {one["rollout_id"] for one in found["leases"]} == {one.rollout_id for one in held}
    assert {one["worker"] for one in found["leases"]} <= {"one"}
    for one, state in zip(found["runs"], dispatcher.runs(), strict=True):
        assert one == {name: getattr(state, name) for name in one} | {"causes": dict(state.causes)}
    fields = {tuple(sorted(need)): num for need, num in dispatcher.inspector.needs().items()}
    assert {tuple(one["needs"]): one["num"] for one in found["backlog"]} == fields
    assert all(one["num_workers"] == {0: 2, 1: 1, 2: 0}[len(one["needs"])] for one in found["backlog"])
    expected = dispatcher.dead()
    assert dead["total"] == len(expected) > 0
    assert [one["rollout_id"] for one in dead["items"]] == [one.rollout_id for one in expected]
    assert {one["error"]: one["num"] for one in dead["by_error"]} == Counter(one.errors[-1] for one in expected)


def test_workers_tell_what_they_hold_and_offer(fresh, redis, keys, settings):
    queue = Queue(redis, keys, settings)
    queue.heartbeat("one", json.dumps({"offers": "gpu net", "slots": 4, "held": 3, "agent": "a:b"}).encode(), [])
    queue.dispatcher.drain(["one"])
    queue.heartbeat("other", b"{}", [])

    workers = {one["worker"]: one for one in fresh.get("/api/v1/workers")["items"]}

    assert (workers["one"]["state"], workers["other"]["state"]) == ("draining", "up")
    assert [workers["one"][name] for name in ("slots", "held", "agent", "offers")] == [4, 3, "a:b", ["gpu", "net"]]
    assert workers["other"]["slots"] is None


def test_engines_tell_their_version_and_how_long_switches_held_calls(fresh, redis, keys):
    registry = EngineRegistry(redis, keys)
    own = {"run": "r0", "model": "m", "location": "w", "logprobs_mode": "processed", "state": "serving", "epoch": 0}
    registry.register(Engine(url="http://e", version=3, **own))
    registry.switch("http://e", 4, "w4", lambda: None)
    registry.renew_gateway("g")

    answer = fresh.get("/api/v1/engines")

    (engine,) = answer["items"]
    known = registry.read("http://e")
    assert (engine["version"], engine["num_switches"], engine["held_seconds"]) == (4, 1, None)
    assert engine["stall_seconds"] == known.stall_seconds
    assert answer["gateways"] == ["g"]


def test_a_stale_engine_and_a_lease_that_lapses_are_marked(fresh, redis, keys, settings):
    now = redis.time()[0]
    for number, age in enumerate((3000.0, 725.0, 5.0)):
        version = PolicyVersion(run="r0", number=number, location=f"w{number}", created_at=now - age)
        register_policy(redis, keys, version, lambda _: None)
    own = {"run": "r0", "model": "m", "logprobs_mode": "processed", "state": "serving", "epoch": 0}
    for number in range(3):
        EngineRegistry(redis, keys).register(Engine(url=f"http://e{number}", version=number, location="w", **own))

    engines = fresh.get("/api/v1/engines")["items"]

    assert [(one["version"], one["newest_version"], one["is_stale"]) for one in engines] == [
        (0, 2, True),
        (1, 2, False),
        (2, 2, False),
    ]
    assert [one["behind_seconds"] for one in engines] == [pytest.approx(age, abs=3) for age in (725, 5, 0)]

    queue = Queue(redis, keys, settings)
    queue.add([Task(id="t", run="r0")])
    queue.claim("w", 1)
    late = Viewed(fresh.store, settings.model_copy(update={"heartbeat_seconds": 0.0}))
    assert [one["is_lapsing"] for one in fresh.get("/api/v1/queue")["leases"]] == [False]
    assert [one["is_lapsing"] for one in late.get("/api/v1/queue")["leases"]] == [True]


def test_a_quiet_machine_has_lists_that_are_empty(fresh):
    assert fresh.get("/api/v1/workers")["items"] == []
    assert fresh.get("/api/v1/queue")["leases"] == fresh.get("/api/v1/queue")["backlog"] == []
    assert fresh.get("/api/v1/dead") == {"total": 0, "items": [], "by_error": []}
    assert isinstance(fresh.get("/api/v1/sandboxes")["items"], list)


def test_sandboxes_are_those_that_supervisors_have_written_down(fresh):
    taken = TakenSandbox(box="b-1", kind="process", owner="lease", task="t", role="agent", taken_at=1.5)
    directory = make_supervisor_directory()
    lock = hold_owned_directory(directory)
    try:
        write_taken_sandboxes(directory, [taken])
        (listed,) = [one for one in fresh.get("/api/v1/sandboxes")["items"] if one["box"] == "b-1"]
    finally:
        os.close(lock)
        shutil.rmtree(directory)

    assert listed == msgspec.structs.asdict(taken)
