"""Each role's Redis user can do all of its work, and nothing else."""

import asyncio
import threading
import time
from contextlib import aclosing
from itertools import islice

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from redis import Redis
from redis.exceptions import NoPermissionError

from agent_layer.cli.store.acl import ROLES, acl_rules
from agent_layer.dispatcher import Dispatcher, connect
from agent_layer.engines.policies import register_policy
from agent_layer.engines.registry import EngineRegistry
from agent_layer.errors import UnreachableError
from agent_layer.infra.processes.locks import is_locked
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.keys import Keys
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.training import PolicyVersion
from agent_layer.settings import Settings
from agent_layer.shipper.destination import open_destination
from agent_layer.shipper.ship import Shipper
from agent_layer.store import open_store
from agent_layer.store.consumers.trained_batches import list_batches
from agent_layer.store.maintenance.gc import Grace
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.view import ReadContext, build_view_app
from trainer_adapter.loop.run_lock import claim_run

from ...processes import stop_shippers
from ...waiting import scaled, until, wait_until, within
from .conftest import WorkerHarness, serve_gateway

NAMESPACE = "roles"


@pytest.fixture(
    scope="module",
    params=["carried", *(pytest.param(make, marks=pytest.mark.other_make) for make in ("redis7", "redis6"))],
)
def guarded(request, start_redis):
    """A server that knows one user for each role; its administrator."""
    with Redis.from_url(start_redis(request.param)) as admin:
        version = float(".".join(admin.info()["redis_version"].split(".")[:2]))
        for role in ROLES:
            admin.execute_command("ACL", "SETUSER", role, *acl_rules(role, Keys(NAMESPACE), version), ">secret")
        yield admin


@pytest.fixture
def make_settings(guarded, tmp_path):
    """``make_settings(role)``: of one machine; all share the objects."""
    socket = guarded.connection_pool.connection_kwargs["path"]

    def choose(role, **changes):
        return Settings(
            dir=tmp_path / role,
            redis_url=f"unix://{role}:secret@{socket}",
            objects_url=(tmp_path / "objects").as_uri(),
            namespace=NAMESPACE,
            api_key="operator-key",
            log_roll_seconds=0.05,
            ship_poll_seconds=0.01,
            ship_linger_seconds=0.2,
            heartbeat_seconds=0.1,
            stop_seconds=scaled(5.0),
            retry_seconds=scaled(5.0),
            **changes,
        )

    guarded.acl_log_reset()
    yield choose
    for role in ROLES:  # a shipper that goes on would index what the next test does not have
        stop_shippers(tmp_path / role)
        for lock in (tmp_path / role).glob("logs/*/shipper.lock"):
            wait_until(lambda lock=lock: not is_locked(lock))
    for key in guarded.scan_iter("*"):
        guarded.delete(key)


def refusals(admin):
    return [(entry["username"], entry["object"], entry["context"]) for entry in admin.acl_log()]


async def test_each_role_does_its_work_and_asks_for_nothing_else(guarded, make_settings, chatter, task):
    gateway, trainer, reader = (make_settings(role) for role in ("gateway", "trainer", "reader"))
    async with serve(ScriptedEngine()) as engine:
        with open_redis(gateway) as redis:
            async with serve_gateway(gateway, redis, Keys(NAMESPACE), engine) as url:
                worker = make_settings("worker", gateway_url=url)
                store = open_store(reader)
                harness = WorkerHarness(settings=worker, engine=engine, dispatcher=connect(trainer), store=store)
                trajectories = await harness.run(chatter, task("a", group_size=2))
                deliveries = await asyncio.to_thread(train, trainer, engine)
    for settings in (gateway, trainer, worker):
        assert open_recorder(settings).flush().pending == 0  # 'gc' without grace would take what is on its way
        open_recorder(settings).close()

    assert len(trajectories) == len(deliveries[0].trajectories) == 2
    look(store, Dispatcher(store.redis, reader))
    kept, deleted = (one.trajectory_id for one in trajectories)
    care(make_settings("operator"), deleted)
    assert [one.trajectory_id for one in store.query().items] == [kept]
    assert store.get(kept).reward == 0.5
    assert refusals(guarded) == []


def train(settings, engine):
    """What a trainer asks of Redis between two steps."""
    store = open_store(settings)
    registry = EngineRegistry(store.redis, store.keys, 0.1)
    policy = PolicyVersion(run="default", number=1, location="w", created_at=1.0)
    register_policy(store.redis, store.keys, policy, open_recorder(settings).append)
    registry.switch(engine.url, 1, "w", lambda: None)
    deliveries = list(islice(store.follow("trainer", "default", wait_seconds=scaled(30.0)), 1))
    registry.register(msgspec.structs.replace(registry.read(engine.url), url="http://127.0.0.1:1"))
    assert asyncio.run(first_closed(settings)).group_id == deliveries[0].group.group_id
    with claim_run(store.redis, settings, "default"):
        for one in deliveries:
            one.ack()
    group_id = deliveries[0].group.group_id
    assert store.find_acknowledged("trainer", "default", [group_id, "other"]) == [group_id]
    return deliveries


async def first_closed(settings):
    with connect(settings) as dispatcher:
        async with aclosing(dispatcher.finished(run="default")) as following:
            return await anext(following)


def care(settings, trajectory_id):
    """What an operator does to a store."""
    store = open_store(settings)
    store.reward(trajectory_id, 0.25, name="opinion", reward_id="mine")
    assert open_recorder(settings).flush().pending == 0
    open_recorder(settings).close()
    store.admin.reindex(drop=True)
    assert store.admin.check().findings == []
    store.admin.expire(older_than=time.time() - 3_600)
    assert store.delete(trajectory_id).num_segments_left == 0
    store.admin.compact(limits=Limits(least_age_seconds=0.0, small_bytes=1 << 20))
    assert store.admin.collect_garbage(grace=Grace(seconds=0.0)).findings == []
    assert store.admin.check(repair=True).findings == []


def look(store, dispatcher):
    """What readers ask."""
    for order in ("newest", "oldest", "reward"):
        assert store.query(order=order, accepted=True, reward=(0.1, None)).items
    assert store.count(accepted=True) == 2
    store.summarise(by=["task_type"])
    store.explain(accepted=True)
    assert store.admin.quarantine() == {}
    assert list_batches(store.redis, store.keys, "default") == []
    dispatcher.stats()
    groups = dispatcher.groups(dispatcher.inspector.closed_ids())
    assert [group.is_closed for group in groups] == [True]
    dispatcher.inspector.tally(groups)
    dispatcher.workers()
    dispatcher.runs()
    dispatcher.dead()
    for shelf in ("leases", "delayed", "paused", "dead"):
        assert list(dispatcher.inspector.listed_ids(shelf, "default")) == []
    assert list(dispatcher.inspector.open_ids("default")) == []
    assert len(EngineRegistry(store.redis, store.keys).engines()) == 2


def ship(settings, *records):
    recorder = Recorder(settings)
    for record in records:
        recorder.append(record)
    recorder.close()
    destination = open_destination(settings)
    Shipper(settings.log_dir, destination, threading.Event()).ship_pending()
    destination.close()


def test_a_shipper_that_may_nothing_else_ships(guarded, make_settings):
    ship(make_settings("shipper"), Reward(trajectory_id="x.0-0", reward_id="a", run="r", at=1.0, name="a", score=1.0))

    assert [one.name for one in open_store(make_settings("reader")).get("x.0-0").rewards] == ["a"]
    assert refusals(guarded) == []


CARE = [
    lambda store: store.delete("x.0-0"),
    lambda store: store.delete(run="r", purge=False),
    lambda store: store.admin.expire(run="r", older_than=time.time() + 60),
    lambda store: store.admin.compact(),
    lambda store: store.admin.collect_garbage(grace=Grace(seconds=0.0, tombstone_seconds=0.0)),
    lambda store: store.admin.reindex(drop=True),
]


@pytest.mark.parametrize("role", [role for role in ROLES if role not in ("operator", "shipper")])
def test_a_role_that_is_no_operator_is_stopped_before_anything_of_a_store_is_changed(guarded, make_settings, role):
    started = AttemptStarted(trajectory_id="x.0-0", run="r", rollout_id="x.0", attempt=0, task_id="t", started_at=1.0)
    ended = Outcome(trajectory_id="x.0-0", run="r", status="completed", ended_at=2.0)
    ship(make_settings("shipper"), started, ended)
    operator = open_store(make_settings("operator"))
    objects = sorted(operator.objects.list(""))

    for act in CARE:
        with pytest.raises(UnreachableError, match="'agent-layer store acl' prints the rights of each role"):
            act(open_store(make_settings(role)))

    assert sorted(operator.objects.list("")) == objects
    assert operator.admin.check().findings == []
    assert {user for user, _, _ in refusals(guarded)} == {role}
    for act in CARE:
        act(operator)
    assert operator.count() == 0


FORBIDDEN = [
    *("FLUSHALL", "FLUSHDB", "CONFIG GET *", "KEYS *", "SAVE", "ACL LIST", "SHUTDOWN", "MONITOR", "EVAL return{} 0"),
    *("HGETALL al:{other}:t:x", "XADD al:{other}:outbox * a b"),
]


@pytest.mark.parametrize("role", ROLES)
def test_no_role_reaches_other_namespaces_or_the_server_itself(make_settings, role):
    with Redis.from_url(make_settings(role).redis_url) as redis:
        for command in FORBIDDEN:
            with pytest.raises(NoPermissionError):
                redis.execute_command(*command.split())


WRITES = {
    "reader": [
        "HSET t:x a b",
        "SADD acked:r:c g",
        "HSET feeds:r c g",
        "XADD outbox * a b",
        "DEL zones",
        "HSET engine:e state serving",
    ],
    "worker": ["HSET engine:e state serving", "HSET claims:r:c:train:sessions m s", "SET exported:c 1"],
    "gateway": ["ZADD q:ready 1 a", "HSET claims:r:c:train:sessions m s"],
    "shipper": ["ZADD q:ready 1 a", "HSET engine:e state serving", "HSET claims:r:c:train:sessions m s"],
    "trainer": ["SET exported:c 1", "SCAN 0"],
}
ONLY_READ = ["SADD acked:r:c g", "HSET feeds:r c g"]
"""Writes that only the trainer may do. Before Redis 7, an ACL cannot grant reads without writes."""


@pytest.mark.parametrize("role", WRITES)
def test_what_is_another_roles_work_is_refused(guarded, make_settings, role):
    tells_reading = not guarded.info()["redis_version"].startswith("6") and role != "trainer"
    with Redis.from_url(make_settings(role).redis_url) as redis:
        for line in WRITES[role] + (ONLY_READ if tells_reading else []):
            command, key, *values = line.split()
            with pytest.raises(NoPermissionError):
                redis.execute_command(command, key if command == "SCAN" else Keys(NAMESPACE).name(key), *values)


async def test_a_page_is_live_under_the_rights_of_a_reader(guarded, make_settings, task):
    reader = make_settings("reader")
    app = build_view_app(ReadContext(reader, open_store(reader)))
    async with (
        TestClient(TestServer(app)) as page,
        page.get("/api/v1/events") as stream,
        within(60, "an event of the fleet"),
    ):
        await until(lambda: any((one["user"], one["cmd"]) == ("reader", "xread") for one in guarded.client_list()))
        with connect(make_settings("trainer")) as dispatcher:
            dispatcher.submit([task()])
        async for line in stream.content:
            if line == b"event: fleet\n":
                break
        else:
            pytest.fail("the stream ended")
    assert refusals(guarded) == []


def test_a_reader_that_tries_to_write_is_told_which_command_prints_the_rights(make_settings, task):
    with pytest.raises(UnreachableError, match="'agent-layer store acl' prints the rights of each role"):
        connect(make_settings("reader")).submit([task()])
