"""A server that loses everything under a running line: nothing is restarted, and each key fares as its table says."""

import pytest

from agent_layer.engines import open_engine_registry
from agent_layer.health import HealthReader
from agent_layer.infra.redis.key_table import find_families
from agent_layer.schema.task import Task
from agent_layer.store.store import open_store
from agent_layer.view.addresses import announce_page, find_page

from ...waiting import scaled
from ...working import ASK

AGENT = (
    ASK
    + """
import asyncio, pathlib

async def agent(task, rollout):
    await ask(rollout)
    while not pathlib.Path(task.input).exists():
        await asyncio.sleep(0.05)
    return 1.0
"""
)


def read_keys(redis, keys):
    """Return the names below the namespace by fate, and those that no row of the table declares."""
    found = {"rebuilt": set(), "announced": set(), "lost": set(), "undeclared": set()}
    for key in redis.scan_iter(match=keys.name("*")):
        families = find_families(keys, key.decode())
        found[families[0].fate if families else "undeclared"].add(key.decode())
    return found


@pytest.fixture
def line(dispatcher, start_worker, worker_output, write_module, wait_until, tmp_path):
    """Three groups that are done, and one whose attempt runs until the file ``go`` is there."""
    write_module("agent", AGENT)
    start_worker("agent:agent", "--slots", "4")
    (tmp_path / "now").touch()
    with announce_page(dispatcher.settings, "http://127.0.0.1:1/"):
        tasks = [Task(id=f"t{at}", run="default", group_size=2, input=str(tmp_path / "now")) for at in range(3)]
        tasks.append(Task(id="slow", run="default", input=str(tmp_path / "go")))
        groups = dispatcher.submit(tasks)
        assert all(group.is_closed for group in dispatcher.wait(groups[:3], timeout=scaled(60)))
        wait_until(lambda: dispatcher.rollouts(groups[3:])[0].status == "running", log=worker_output)
        yield tasks


@pytest.mark.long
def test_an_emptied_server(stack, line, dispatcher, wait_until, worker_output, tmp_path):
    store = open_store(stack.settings)
    redis, keys = store.redis, store.keys
    following = store.follow("trainer", "default", wait_seconds=scaled(30.0))
    delivered = [next(following) for _ in range(3)]
    for delivery in delivered:
        delivery.ack()
    dispatcher.pause("other", why="a person")
    wait_until(lambda: store.query(task="slow").items and find_page(stack.settings))
    before, rows = read_keys(redis, keys), {row.trajectory_id: row for row in store.query(accepted=True).items}
    assert before["undeclared"] == set()

    for key in redis.scan_iter(match=keys.name("*")):
        redis.delete(key)

    wait_until(lambda: read_keys(redis, keys)["announced"] >= before["announced"], log=worker_output)
    (engine,) = open_engine_registry(stack.settings, redis).engines()
    assert (engine.url, engine.state) == (stack.engine.url, "serving")
    assert find_page(stack.settings) == "http://127.0.0.1:1/"
    (health,) = HealthReader(stack.settings, redis).read(["default"])
    assert "data_lost" in {one.name for one in health.findings}

    assert store.admin.reindex().corrupt == []
    gone = before["rebuilt"] - read_keys(redis, keys)["rebuilt"]
    assert {key.rpartition(":")[2] for key in gone} <= {"status=running"}  # the attempt that lost its lease
    assert {row.trajectory_id: row for row in store.query(accepted=True).items} == rows
    assert store.admin.check().is_sound

    (group_id,) = {dispatcher.submit(line)[3]} & {group.group_id for group in dispatcher.groups()}
    (tmp_path / "go").touch()
    (group,) = dispatcher.wait([group_id], timeout=scaled(60))
    assert (group.is_closed, group.num_accepted) == (True, 1)
    assert next(following).group.group_id == group_id
    assert [row.reward for row in store.query(task="slow", accepted=True).items] == [1.0]
    wait_until(lambda: {row.status for row in store.query(task="slow").items} <= {"completed", "lost"})
    assert len(store.query(accepted=True).items) == len(rows) + 1
    assert read_keys(redis, keys)["undeclared"] == set()
