"""A Redis Cluster of three nodes: a namespace works wherever its slot lies, and a slot that moves is found again."""

import threading
import time
from contextlib import ExitStack
from itertools import count

import pytest
from redis import Redis
from redis.cluster import key_slot

from agent_layer.dispatcher import connect
from agent_layer.errors import UnreachableError
from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.processes.supervised import start_supervised
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.keys import Keys
from agent_layer.schema.task import Task
from agent_layer.settings import Settings
from agent_layer.store import open_store

from ..builders import attempt, closed_group
from ..queues import open_queue
from ..stored import collect_answers, write_segment
from ..waiting import wait_until

pytestmark = pytest.mark.long

_NUM_SLOTS = 16384
_numbers = count()


class Cluster:
    """Three nodes with a third of the slots each."""

    def __init__(self, program, directory, cleanup):
        self.nodes = []
        for number in range(3):
            port = free_port()
            while port > 55_000:  # the bus has port + 10,000
                port = free_port()
            own = directory / str(number)
            own.mkdir()
            options = [
                "--port",
                str(port),
                "--bind",
                "127.0.0.1",
                "--dir",
                str(own),
                "--save",
                "",
                "--appendonly",
                "yes",
            ]
            options += ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
            server = start_supervised([program, *options], {}, own / "log")
            cleanup.callback(server.stop)
            self.nodes.append(Redis(port=port))
        for number, node in enumerate(self.nodes):
            wait_until(lambda node=node: _answers(node))
            first, last = number * _NUM_SLOTS // 3, (number + 1) * _NUM_SLOTS // 3 - 1
            node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            self.nodes[0].execute_command("CLUSTER", "MEET", "127.0.0.1", self.port(node))
        for node in self.nodes:
            wait_until(lambda node=node: node.info("cluster") and self._is_ok(node), 30)

    @staticmethod
    def port(node):
        return node.connection_pool.connection_kwargs["port"]

    @staticmethod
    def _is_ok(node):
        found = node.execute_command("CLUSTER", "INFO").decode()
        return "cluster_state:ok" in found and "cluster_known_nodes:3" in found

    def url(self, number):
        return f"redis://127.0.0.1:{self.port(self.nodes[number])}"

    def owner(self, slot):
        return next(node for node in self.nodes if self._owns(node, slot))

    @staticmethod
    def _owns(node, slot):
        me = node.execute_command("CLUSTER", "MYID").decode()
        shards = node.execute_command("CLUSTER", "SLOTS")
        return any(first <= slot <= last and one[2].decode() == me for first, last, one, *_ in shards)

    def begin_move(self, slot):
        """Mark a slot as moving; return (source, target)."""
        source = self.owner(slot)
        target = next(node for node in self.nodes if node is not source)
        ids = [node.execute_command("CLUSTER", "MYID").decode() for node in (source, target)]
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        return source, target

    def move_keys(self, slot, source, target, most=1_000_000):
        while most > 0 and (keys := source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, min(10, most))):
            source.execute_command("MIGRATE", "127.0.0.1", self.port(target), "", 0, 5000, "KEYS", *keys)
            most -= len(keys)

    def end_move(self, slot, target):
        me = target.execute_command("CLUSTER", "MYID").decode()
        for node in (target, *self.nodes):
            node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", me)

    def move(self, slot):
        source, target = self.begin_move(slot)
        self.move_keys(slot, source, target)
        self.end_move(slot, target)


def _answers(node):
    try:
        return node.ping()
    except OSError:
        return False
    except Exception:  # noqa: BLE001  # any answer that is none: it starts
        return False


@pytest.fixture(scope="module")
def cluster(redis_programs, tmp_path_factory):
    if "redis7" not in redis_programs:
        pytest.skip("no Redis 7 to make a cluster of")
    with ExitStack() as cleanup:
        yield Cluster(redis_programs["redis7"], tmp_path_factory.mktemp("cluster"), cleanup)


@pytest.fixture
def place(cluster, tmp_path):
    """``place(node)``: settings of a fresh namespace whose slot lies at that node; the client starts at another one."""

    def make(number, **changes):
        names = (f"n{one}" for one in _numbers)
        namespace = next(name for name in names if cluster.owner(find_slot(name)) is cluster.nodes[number])
        given = {"retry_seconds": 20.0} | changes
        return Settings(dir=tmp_path, redis_url=cluster.url((number + 1) % 3), namespace=namespace, run="r", **given)

    return make


def find_slot(namespace):
    return key_slot(Keys(namespace).name().encode())


def play(settings, name):
    """Queue, claim and report a rollout, and store a group; return the store."""
    store, dispatcher = open_store(settings), connect(settings)
    dispatcher.submit([Task(id=name, run="r", input=1)])
    queue = open_queue(dispatcher)
    (lease,) = queue.claim("w", 1)
    queue.heartbeat("w", b"{}", [(lease, "running")])
    trajectory_id = f"{name}.0-0"
    write_segment(store, *attempt(trajectory_id, group_id=name), closed_group(name, trajectory_id))
    assert [one.group.group_id for one in store.follow(name, "r", wait_seconds=0)][-1] == name
    assert store.query(run="r", accepted=True).items
    assert store.admin.check().findings == []
    return store


@pytest.mark.parametrize("number", range(3))
def test_a_namespace_works_wherever_its_slot_lies(place, number):
    settings = place(number)

    store = play(settings, "a")

    before = collect_answers(store)
    store.admin.reindex(drop=True)
    assert collect_answers(store) == before


def test_every_client_finds_a_slot_that_has_moved(place, cluster):
    settings = place(0)
    store, others = play(settings, "a"), [open_redis(settings) for _ in range(2)]
    before = collect_answers(store)
    cluster.move(find_slot(settings.namespace))

    assert collect_answers(store) == before
    assert list(others[0].scan_iter(match=Keys(settings.namespace).name("t", "*")))
    play(settings, "b")
    cluster.move(find_slot(settings.namespace))
    play(settings, "c")
    assert others[1].hlen(Keys(settings.namespace).segments) == 3


def test_calls_wait_while_a_slot_moves_key_by_key_and_nothing_is_split(place, cluster):
    settings = place(1)
    store = play(settings, "a")
    slot, errors, played = find_slot(settings.namespace), [], []

    def work():
        try:
            played.append(play(settings, "b"))
        except Exception as error:  # noqa: BLE001  # shown below
            errors.append(error)

    source, target = cluster.begin_move(slot)
    cluster.move_keys(slot, source, target, most=5)
    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)  # in the middle of a migration
    assert (errors, played) == ([], [])
    cluster.move_keys(slot, source, target)
    cluster.end_move(slot, target)
    wait_until(lambda: not thread.is_alive(), 30)

    assert errors == []
    assert {row.task_id for row in store.query().items} == {"t"}
    assert store.admin.check().findings == []
    assert source.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == 0


def test_a_migration_that_does_not_end_is_named_after_the_limit(place, cluster):
    settings = place(2, retry_seconds=1.0)
    dispatcher, store = connect(settings), open_store(settings)
    dispatcher.submit([Task(id="a", run="r", input=1)])
    slot = find_slot(settings.namespace)
    source, target = cluster.begin_move(slot)
    cluster.move_keys(slot, source, target, most=3)

    for call in (lambda: dispatcher.submit([Task(id="b", run="r", input=1)]), store.query, lambda: store.get("x.0-0")):
        with pytest.raises(UnreachableError, match=r"moves to another node key by key.*finish that migration"):
            call()

    cluster.move_keys(slot, source, target)
    cluster.end_move(slot, target)
    dispatcher.submit([Task(id="b", run="r", input=1)])
    assert {group.task_id for group in dispatcher.groups()} == {"a", "b"}
