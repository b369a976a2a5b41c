"""Direct clients of a Redis that cannot serve: they wait, then raise one clear sentence."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from agent_layer.dispatcher import connect
from agent_layer.errors import UnreachableError
from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.redis.client import open_redis
from agent_layer.recorder import open_recorder
from agent_layer.schema.reward import Reward
from agent_layer.schema.task import Task
from agent_layer.store.store import open_store

from ...waiting import join, scaled, wait_until

TASK = Task(id="t", run="r", input=1)


@pytest.fixture
def spoiled(settings, own_redis):
    """``spoiled(seconds)``: settings of a server that a test may break, retried for ``seconds``."""

    def choose(seconds):
        return settings.model_copy(update={"redis_url": own_redis.url, "retry_seconds": seconds})

    return choose


SPOILT = [
    (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "raise its maxmemory"),
    (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "the server that takes writes"),
]


@pytest.mark.parametrize(("spoil", "mend", "remedy"), SPOILT, ids=["is out of memory", "is read-only"])
def test_a_refusal_that_stays_is_one_sentence_and_one_that_passes_is_not_noticed(
    spoiled, own_redis, spoil, mend, remedy
):
    hasty, patient = connect(spoiled(1.0)), connect(spoiled(scaled(60.0)))
    with Redis.from_url(own_redis.url) as redis:
        redis.execute_command(*spoil)

        with pytest.raises(
            UnreachableError, match=rf"expected it to serve within 1 s, found .*; .*{remedy}"
        ) as refused:
            hasty.submit([TASK])
        assert "\n" not in str(refused.value)
        mending = threading.Timer(0.3, redis.execute_command, mend)
        mending.start()
        (group_id,) = patient.submit([TASK])
        join(mending)  # its connection is open until it has its answer

    assert [group.group_id for group in patient.groups()] == [group_id]


def answer_soon(ask):
    """Return or raise what ``ask`` does, if it takes far less time than a client that tries again and again."""
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(ask)
        wait_until(request.done, 15)
        return request.result()


def test_a_server_that_has_gone_is_named_in_time_whoever_asks(spoiled, own_redis):
    settings = spoiled(0.5)
    store, dispatcher = open_store(settings), connect(settings)
    own_redis.send(signal.SIGSTOP)

    for ask in (store.query, lambda: store.get("r.0-0"), dispatcher.stats, lambda: dispatcher.submit([TASK])):
        with pytest.raises(UnreachableError, match=r"expected it to serve within 0\.5 s"):
            answer_soon(ask)


def test_a_server_that_still_reads_its_file_is_waited_for(settings, start_redis, tmp_path):
    with Redis.from_url(start_redis("carried", "--dir", str(tmp_path))) as redis:
        pipeline = redis.pipeline(transaction=False)
        for number in range(3000):
            pipeline.set(str(number), number)
        pipeline.execute()
        os.kill(redis.info()["process_id"], signal.SIGKILL)
    url = start_redis("carried", "--dir", str(tmp_path), "--key-load-delay", "300")

    with open_redis(settings.model_copy(update={"redis_url": url, "connect_seconds": scaled(60.0)})) as again:
        assert again.mget("0", "2999") == [b"0", b"2999"]


def test_a_master_that_is_replaced_behind_its_address_is_left_for_the_new_one(settings, start_redis, make_proxy):
    ports = [free_port(), free_port()]
    old, new = (Redis.from_url(start_redis("carried", "--port", str(port))) for port in ports)
    proxy = make_proxy(("127.0.0.1", ports[0]))
    dispatcher = connect(settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{proxy.port}"}))
    dispatcher.submit([TASK])
    new.replicaof("127.0.0.1", ports[0])
    wait_until(lambda: new.info("replication")["master_link_status"] == "up")
    wait_until(lambda: new.dbsize() == old.dbsize())

    new.replicaof("NO", "ONE")
    old.replicaof("127.0.0.1", ports[1])
    proxy.target = ("127.0.0.1", ports[1])
    dispatcher.submit([Task(id="u", run="r", input=1)])

    assert [group.task_id for group in dispatcher.groups()] == ["t", "u"]
    assert new.info("replication")["role"] == "master"


def test_a_command_that_is_wrong_is_not_tried_again(spoiled):
    with open_redis(spoiled(scaled(60.0))) as redis, pytest.raises(Exception, match="wrong number of arguments"):
        answer_soon(lambda: redis.execute_command("GET"))


def test_records_wait_for_a_server_that_was_killed_and_starts_again(settings, start_redis, tmp_path):
    port = free_port()
    # with "everysec" the server may keep for a second what it acknowledged, and a kill loses that
    options = ("--port", str(port), "--dir", str(tmp_path), "--appendfsync", "always")
    with Redis.from_url(start_redis("carried", *options)) as redis:
        process = redis.info()["process_id"]
    away = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{port}"})
    recorder = open_recorder(away)
    recorder.append(reward("a"))
    assert recorder.flush().pending == 0
    os.kill(process, signal.SIGKILL)
    recorder.append(reward("b"))

    assert recorder.flush(timeout=0.5).pending == 1
    start_redis("carried", *options)
    assert recorder.flush(timeout=scaled(60)).pending == 0
    assert [one.name for one in open_store(away).get("r.0-0").rewards] == ["a", "b"]
    assert (settings.log_dir / "shipper.log").read_text().count("shipping failed") <= 2


def reward(name):
    return Reward(trajectory_id="r.0-0", reward_id=name, run="r", at=1.0, name=name, score=1.0)
