"""A draining worker claims nothing more, lets running attempts go on for a time, and loses nothing."""

import signal

import pytest

from agent_layer.schema.task import Task
from agent_layer.store.store import open_store

AGENT = """
import asyncio, pathlib
import openai

client = openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none")

async def agent(task, rollout):
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "turn 0"}])
    while not pathlib.Path(task.id).exists():
        await asyncio.sleep(0.01)
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "turn 1"}])
    return 1.0
"""


@pytest.fixture(autouse=True)
def _agent(write_module):
    write_module("agent", AGENT)


@pytest.fixture
def submit(dispatcher, wait_until):
    """``submit(task_id)``: queue a task and wait until its rollout runs; returns its group."""

    def submit_one(task_id):
        groups = dispatcher.submit([Task(id=task_id, run="default")])
        wait_until(lambda: dispatcher.rollouts(groups)[0].status == "running", 60)
        return groups

    return submit_one


def is_draining(dispatcher):
    return [one.about.get("draining") for one in dispatcher.workers()] == ["yes"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_is_finished_and_nothing_more_is_claimed(
    dispatcher, start_worker, submit, tmp_path, wait_until, number
):
    worker = start_worker("agent:agent", "--slots", "2")
    running = submit("first")

    worker.send_signal(number)
    wait_until(lambda: is_draining(dispatcher))
    waiting = dispatcher.submit([Task(id="second", run="default")])
    (tmp_path / "first").touch()

    assert worker.wait(60) == 0
    (done,), (queued,) = dispatcher.rollouts(running), dispatcher.rollouts(waiting)
    assert (done.status, done.num_attempts, done.num_failures) == ("completed", 1, 0)
    assert (queued.status, queued.num_attempts) == ("queued", 0)
    assert dispatcher.workers() == []


def test_who_is_drained_by_the_dispatcher_ends_as_by_a_signal(dispatcher, start_worker, submit, tmp_path, wait_until):
    worker = start_worker("agent:agent", "--slots", "2")
    running = submit("first")

    assert dispatcher.drain([one.worker for one in dispatcher.workers()]) != []
    wait_until(lambda: is_draining(dispatcher))
    waiting = dispatcher.submit([Task(id="second", run="default")])
    (tmp_path / "first").touch()

    assert worker.wait(60) == 0
    (done,), (queued,) = dispatcher.rollouts(running), dispatcher.rollouts(waiting)
    assert (done.status, done.num_attempts, done.num_failures) == ("completed", 1, 0)
    assert (queued.status, queued.num_attempts) == ("queued", 0)


def test_a_person_reads_what_is_waited_for(start_worker, submit, said, tmp_path, wait_until):
    worker = start_worker("agent:agent", "--drain", "20")
    submit("first")

    worker.send_signal(signal.SIGINT)
    wait_until(lambda: "waiting for" in said())
    (tmp_path / "first").touch()

    assert worker.wait(60) == 0
    begun, asked, ended = said().splitlines()
    assert begun.endswith(" runs agent:agent, 16 at a time; Ctrl-C drains it")
    assert asked == "agent-layer: waiting for 1 rollout to end, at most 20 s; Ctrl-C again gives up sooner"
    assert ended.endswith(" has ended: 1 completed")


def test_a_worker_that_runs_nothing_ends_without_a_wait(start_worker, said, wait_until):
    worker = start_worker("agent:agent", "--run", "r")
    wait_until(lambda: said().endswith("\n"), 60)

    worker.send_signal(signal.SIGINT)
    assert worker.wait(60) == 0
    begun, asked, ended = said().splitlines()
    assert begun.endswith(" runs agent:agent for run r, 16 at a time; Ctrl-C drains it")
    assert asked == "agent-layer: nothing runs; ending as soon as everything is stored"
    assert ended.endswith(" has ended: it ran nothing")


def test_when_the_time_is_up_the_rest_is_given_back_and_what_it_said_is_stored(
    dispatcher, stack, start_worker, submit, tmp_path
):
    machine = {"AGENT_LAYER_DIR": str(tmp_path / "other"), "AGENT_LAYER_SHIP_POLL_SECONDS": "8"}
    objects = {"AGENT_LAYER_OBJECTS_URL": stack.settings.objects_location}
    worker = start_worker("agent:agent", "--drain", "0.5", **machine, **objects)
    groups = submit("first")

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    (rollout,) = dispatcher.rollouts(groups)
    assert (rollout.status, rollout.num_failures) == ("queued", 0)
    store = open_store(stack.settings)
    with store.redis:
        (lost,) = store.query(task="first").items  # at once: the worker has waited for it
    assert (lost.status, lost.cause) == ("lost", "infra")


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_gives_back_at_once(dispatcher, start_worker, submit, wait_until, second):
    worker = start_worker("agent:agent", "--drain", "600")
    groups = submit("first")

    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: is_draining(dispatcher))
    worker.send_signal(second)

    assert worker.wait(60) == 0
    (rollout,) = dispatcher.rollouts(groups)
    assert (rollout.status, rollout.num_attempts, rollout.num_failures) == ("queued", 1, 0)


def test_an_idle_worker_ends_without_waiting(dispatcher, start_worker, wait_until):
    worker = start_worker("agent:agent", "--drain", "600")
    wait_until(lambda: len(dispatcher.workers()) == 1, 60)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    assert dispatcher.workers() == []
