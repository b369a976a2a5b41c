"""A draining worker claims nothing more, lets running attempts go on for a time, and loses nothing."""

import signal

import pytest

from agent_layer.schema.task import Task
from agent_layer.store.store import open_store

from ...waiting import wait_for_exit
from ...working import ASK

AGENT = (
    ASK
    + """
import asyncio, pathlib

async def agent(task, rollout):
    await ask(rollout, "turn 0")
    while not pathlib.Path(task.id).exists():
        await asyncio.sleep(0.01)
    await ask(rollout, "turn 1")
    return 1.0
"""
)


@pytest.fixture
def stack(shared_stack):
    return shared_stack


@pytest.fixture(autouse=True)
def _agent(write_module):
    write_module("agent", AGENT)


@pytest.fixture
def submit(dispatcher, wait_until, worker_output):
    """``submit(task_id)``: queue a task and wait until its rollout runs; returns its group."""

    def submit_one(task_id):
        groups = dispatcher.submit([Task(id=task_id, run="default")])
        wait_until(lambda: dispatcher.rollouts(groups)[0].status == "running", log=worker_output)
        return groups

    return submit_one


def is_draining(dispatcher):
    return [one.about.get("draining") for one in dispatcher.workers()] == ["yes"]


def check_drained(dispatcher, running, waiting):
    (done,), (queued,) = dispatcher.rollouts(running), dispatcher.rollouts(waiting)
    assert (done.status, done.num_attempts, done.num_failures) == ("completed", 1, 0)
    assert (queued.status, queued.num_attempts) == ("queued", 0)
    assert dispatcher.workers() == []


def test_what_runs_is_finished_nothing_more_is_claimed_and_a_person_reads_what_is_waited_for(
    dispatcher, start_worker, submit, worker_output, tmp_path, wait_until
):
    worker = start_worker("agent:agent", "--slots", "2", "--drain", "600")
    running = submit("by-signal")

    worker.send_signal(signal.SIGINT)
    wait_until(lambda: is_draining(dispatcher) and "waiting for" in worker_output())
    waiting = dispatcher.submit([Task(id="after-signal", run="default")])
    (tmp_path / "by-signal").touch()

    assert wait_for_exit(worker, log=worker_output) == 0
    check_drained(dispatcher, running, waiting)
    begun, request, ended = worker_output().splitlines()
    assert begun.endswith(" runs agent:agent, 2 at a time; Ctrl-C drains it")
    assert request == "agent-layer: waiting for 1 rollout to end, at most 600 s; Ctrl-C again gives up sooner"
    assert ended.endswith(" has ended: 1 completed")


def test_who_is_drained_by_the_dispatcher_ends_as_by_a_signal(
    dispatcher, start_worker, submit, worker_output, tmp_path, wait_until
):
    worker = start_worker("agent:agent", "--slots", "2", "--drain", "600")
    running = submit("by-order")

    assert dispatcher.drain([one.worker for one in dispatcher.workers()]) != []
    wait_until(lambda: is_draining(dispatcher))
    waiting = dispatcher.submit([Task(id="after-order", run="default")])
    (tmp_path / "by-order").touch()

    assert wait_for_exit(worker, log=worker_output) == 0
    check_drained(dispatcher, running, waiting)


def test_when_the_time_is_up_the_rest_is_given_back_and_what_it_said_is_stored(
    dispatcher, stack, start_worker, submit, worker_output, tmp_path
):
    machine = {"AGENT_LAYER_DIR": str(tmp_path / "other"), "AGENT_LAYER_SHIP_POLL_SECONDS": "3"}
    objects = {"AGENT_LAYER_OBJECTS_URL": stack.settings.objects_location}
    worker = start_worker("agent:agent", "--drain", "0.5", **machine, **objects)
    groups = submit("too-long")

    worker.send_signal(signal.SIGTERM)

    assert wait_for_exit(worker, log=worker_output) == 0
    (rollout,) = dispatcher.rollouts(groups)
    assert (rollout.status, rollout.num_failures) == ("queued", 0)
    store = open_store(stack.settings)
    with store.redis:
        (lost,) = store.query(task="too-long").items  # at once: the worker has waited for it
    assert (lost.status, lost.cause) == ("lost", "infra")


@pytest.mark.long
def test_a_second_signal_gives_back_at_once(dispatcher, start_worker, submit, worker_output, wait_until):
    worker = start_worker("agent:agent", "--drain", "36000")
    groups = submit("given-back")

    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: is_draining(dispatcher))
    worker.send_signal(signal.SIGINT)

    assert wait_for_exit(worker, log=worker_output) == 0
    (rollout,) = dispatcher.rollouts(groups)
    assert (rollout.status, rollout.num_attempts, rollout.num_failures) == ("queued", 1, 0)


@pytest.mark.long
def test_a_worker_that_runs_nothing_ends_without_a_wait(dispatcher, start_worker, worker_output, wait_until):
    worker = start_worker("agent:agent", "--run", "r", "--drain", "36000")
    wait_until(lambda: worker_output().endswith("\n") and len(dispatcher.workers()) == 1, log=worker_output)

    worker.send_signal(signal.SIGINT)

    assert wait_for_exit(worker, log=worker_output) == 0
    assert dispatcher.workers() == []
    begun, request, ended = worker_output().splitlines()
    assert begun.endswith(" runs agent:agent for run r, 16 at a time; Ctrl-C drains it")
    assert request == "agent-layer: nothing runs; ending as soon as everything is stored"
    assert ended.endswith(" has ended: it ran nothing")
