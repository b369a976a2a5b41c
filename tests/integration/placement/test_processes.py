"""``work --on processes``: workers are restarted, drained, replaced one by one, and leave no process behind."""

import os
import signal

import pytest

from agent_layer.schema.task import Task

from ...waiting import scaled, wait_for_exit, wait_until


def test_a_worker_that_is_killed_is_followed_by_another_and_all_tasks_are_done(
    start_worker, worker_output, dispatcher, names, worker_pids
):
    start_worker("agent:agent", "--on", "processes", "--workers", "2", "--slots", "2")
    wait_until(lambda: len(names()) == 2, 100, log=worker_output)
    before = worker_pids()
    groups = dispatcher.submit([Task(id=f"t{n}", run="default", group_size=2) for n in range(6)])

    os.kill(min(before), signal.SIGKILL)

    wait_until(lambda: len(worker_pids()) == 2 and worker_pids() != before, 100, log=worker_output)
    assert all(group.num_accepted == 2 for group in dispatcher.wait(groups, scaled(100)))


def test_sigterm_drains_all_of_them(start_worker, worker_output, dispatcher, names, worker_pids, tmp_path):
    supervisor = start_worker("agent:agent", "--workers", "2", "--slots", "1")
    wait_until(lambda: len(names()) == 2, 100, log=worker_output)
    groups = dispatcher.submit([Task(id="held", run="default", group_size=2, input={"waits": True})])
    wait_until(lambda: {one.status for one in dispatcher.rollouts(groups)} == {"running"}, 100)

    supervisor.send_signal(signal.SIGTERM)
    wait_until(lambda: [one.about.get("draining") for one in dispatcher.workers()] == ["yes", "yes"])
    (tmp_path / "held").touch()

    assert wait_for_exit(supervisor, 100, worker_output) == 0
    assert worker_pids() == names() == set()
    assert [(one.status, one.num_attempts, one.num_failures) for one in dispatcher.rollouts(groups)] == [
        ("completed", 1, 0)
    ] * 2


@pytest.mark.long
def test_a_second_sigterm_gives_back_at_once(start_worker, worker_output, dispatcher):
    supervisor = start_worker("agent:agent", "--on", "processes", "--slots", "1", "--drain", "600")
    groups = dispatcher.submit([Task(id="held", run="default", input={"waits": True})])
    wait_until(lambda: dispatcher.rollouts(groups)[0].status == "running", 100)

    supervisor.send_signal(signal.SIGTERM)
    wait_until(lambda: [one.about.get("draining") for one in dispatcher.workers()] == ["yes"])
    supervisor.send_signal(signal.SIGTERM)

    assert wait_for_exit(supervisor, 100, worker_output) == 0
    assert [(one.status, one.num_failures) for one in dispatcher.rollouts(groups)] == [("queued", 0)]


@pytest.mark.long
def test_workers_end_when_their_supervisor_is_killed(start_worker, worker_output, names, worker_pids):
    supervisor = start_worker("agent:agent", "--workers", "2")
    wait_until(lambda: len(names()) == 2, 100, log=worker_output)

    supervisor.send_signal(signal.SIGKILL)

    wait_until(lambda: worker_pids() == set(), 100, log=worker_output)
    wait_until(lambda: names() == set(), 100, log=worker_output)  # a worker that its leash killed cannot sign off


@pytest.mark.long
def test_sighup_replaces_one_after_another(start_worker, worker_output, names):
    supervisor = start_worker("agent:agent", "--workers", "2")
    wait_until(lambda: len(names()) == 2, 100, log=worker_output)
    before, seen = names(), []

    def are_replaced():
        seen.append(names())
        return len(seen[-1]) == 2 and not seen[-1] & before

    supervisor.send_signal(signal.SIGHUP)
    wait_until(are_replaced, 100)

    assert {len(one) for one in seen} <= {2, 3}
    assert supervisor.poll() is None


@pytest.mark.long
def test_who_is_drained_by_the_dispatcher_is_not_followed_by_another(start_worker, worker_output, dispatcher, names):
    supervisor = start_worker("agent:agent", "--workers", "2")
    wait_until(lambda: len(names()) == 2, 100, log=worker_output)
    first, second = names()

    dispatcher.drain([first])
    wait_until(lambda: names() == {second}, 100, log=worker_output)
    dispatcher.drain([second])

    assert wait_for_exit(supervisor, 100, worker_output) == 0


@pytest.mark.long
def test_workers_that_cannot_start_are_one_sentence_beside_their_own(start_worker, worker_output):
    assert wait_for_exit(start_worker("nobody:agent", "--workers", "2"), 100, worker_output) == 2
    (sentence,) = [line for line in worker_output().splitlines() if line.startswith("agent-layer: workers:")]
    assert sentence.endswith("its arguments or settings are wrong; correct what it reports above")


def test_workers_that_die_before_their_first_heartbeat_again_and_again_are_given_up(
    start_worker, worker_output, write_module
):
    directory = write_module("sitecustomize", "import os, sys\nif '--workers=1' in sys.orig_argv: os._exit(7)")
    path = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])

    assert wait_for_exit(start_worker("agent:agent", "--on", "processes", PYTHONPATH=path), 100, worker_output) == 1
    assert "5 in a row exited before their first heartbeat (last status 7)" in worker_output()


@pytest.mark.long
def test_new_workers_that_do_not_start_replace_nobody(start_worker, worker_output, names, dispatcher, write_module):
    supervisor = start_worker("agent:agent", "--on", "processes")
    wait_until(lambda: len(names()) == 1, 100, log=worker_output)
    before = names()
    write_module("agent", "import os; os._exit(7)")

    supervisor.send_signal(signal.SIGHUP)
    wait_until(lambda: "workers are not replaced" in worker_output(), 100)

    assert (names(), supervisor.poll()) == (before, None)
    assert dispatcher.wait(dispatcher.submit([Task(id="t", run="default")]), scaled(100))[0].num_accepted == 1
