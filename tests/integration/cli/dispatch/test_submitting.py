"""``submit`` while it waits, is interrupted or is killed."""

import json
import os
import signal
import threading

from agent_layer.dispatcher import Report
from agent_layer.recorder import Recorder
from agent_layer.schema.ids import make_group_id
from agent_layer.schema.step import Content

from ....queues import Queue
from ....waiting import communicate, join, read_line, scaled, wait_for_exit

DIES_WHILE_IT_SENDS = """
import os, signal, socket

send = socket.socket.sendall

def sendall(self, content, *flags):
    if b"t1000" in bytes(content):
        os.kill(os.getpid(), signal.SIGKILL)
    return send(self, content, *flags)

socket.socket.sendall = sendall
"""


def submitted(tmp_path, tasks):
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return str(path)


def test_a_submit_that_was_killed_half_way_and_repeated_queues_everything_once(
    queue, start, agent_layer, tmp_path, write_module
):
    num_tasks, size = 2_000, 4
    path = submitted(tmp_path, ({"id": f"t{number}", "input": number} for number in range(num_tasks)))
    command = ("submit", path, "--run", "r", "--group-size", str(size))

    modules = os.pathsep.join(
        [str(write_module("sitecustomize", DIES_WHILE_IT_SENDS)), os.environ.get("PYTHONPATH", "")]
    )
    first = start(*command, PYTHONPATH=modules)
    assert wait_for_exit(first) == -signal.SIGKILL
    num_before = queue.redis.zcard(queue.keys.queue("open"))
    assert 0 < num_before < num_tasks
    for _ in range(2):
        status, out, _ = agent_layer(*command)
        assert (status, out) == (0, f"submitted {num_tasks:,} tasks, {num_tasks * size:,} rollouts, to run r\n")

    assert list(queue.views.open_ids()) == [make_group_id("r", f"t{number}", 0) for number in range(num_tasks)]
    assert queue.views.stats().num_queued == num_tasks * size


def test_options_of_submit_win_over_lines(queue, agent_layer, tmp_path):
    path = submitted(tmp_path, [{"id": "a", "input": 1, "group_size": 2, "priority": 1}])

    done = agent_layer("submit", path, "--run", "r", "--launch", 5, "--partial", "drop", "--priority", 7)
    assert done == (0, "submitted 1 task, 5 rollouts (2 of them needed), to run r\n", "")
    (group,) = queue.views.groups([], 2)
    assert (group.group_size, group.num_launched, group.partial) == (2, 5, "drop")
    assert queue.views.task(group.group_id).priority == 7
    status, _, err = agent_layer("submit", path, "--launch", 1)
    assert (status, err.count("\n")) == (2, 1)
    assert "expected launch from 2" in err


def test_waiting_says_what_became_of_all_and_ships_what_killed_workers_left(
    queue, settings, agent_layer, tmp_path, wait_until
):
    recorder = Recorder(settings)
    left = recorder.append(Content(trajectory_id="r.0-0", hash="h", body=b"1"))
    recorder.close()
    path = submitted(tmp_path, [{"id": "a", "input": 1, "launch": 3, "group_size": 2}, {"id": "b", "input": 2}])

    def work():
        leases = [queue.claim("w", 1, wait_seconds=scaled(60))[0] for _ in range(4)]
        queue.settle([Report(lease=lease, ending="completed") for lease in leases[:2]])
        queue.settle([Report(lease=leases[3], ending="dead", error="user: no")])

    working = threading.Thread(target=work)
    working.start()
    status, out, err = agent_layer("submit", path, "--wait", "--run", "r")
    join(working)

    assert (status, out.splitlines()[-1]) == (1, "accepted 2 of 4 rollouts, 1 surplus, 1 dead"), err
    assert "1 of 2 got fewer; 'agent-layer dead' shows errors" in err
    wait_until(lambda: not (settings.log_dir / f"{left}.log").exists())


def test_waiting_ends_with_the_reason_when_too_much_fails(queue, agent_layer, tmp_path, settings):
    path = submitted(tmp_path, ({"id": f"t{number}", "input": number} for number in range(12)))
    strict = Queue(queue.redis, queue.keys, settings.model_copy(update={"stop_failure_window": 4}))

    def fail():
        leases = []
        while len(leases) < 4:
            leases += strict.claim("w", 4 - len(leases), wait_seconds=scaled(60))
        strict.settle([Report(lease=lease, ending="retry", cause="user", error="user: no key") for lease in leases])

    failing = threading.Thread(target=fail)
    failing.start()
    status, _, err = agent_layer("submit", path, "--wait", "--run", "r")
    join(failing)

    assert status == 1
    assert "run r: expected it to go on, but it is paused: 4 of the newest 4 attempts failed" in err
    assert "user: no key" in err
    assert "'agent-layer runs resume r'" in err


def test_ctrl_c_while_waiting_leaves_everything_queued_and_says_so(queue, start, tmp_path, wait_until):
    path = submitted(tmp_path, [{"id": "a", "input": 1}, {"id": "b", "input": 2}])

    before = {client["id"] for client in queue.redis.client_list()}
    waiting = start("submit", path, "--wait", "--run", "r")
    assert read_line(waiting).startswith("submitted 2 tasks")
    assert "no worker is up" in read_line(waiting, of_errors=True)
    wait_until(lambda: [one for one in queue.redis.client_list() if "b" in one["flags"] and one["id"] not in before])
    waiting.send_signal(signal.SIGINT)
    _, err = communicate(waiting)

    assert waiting.returncode == 130
    assert "no worker is up" not in err, "the warning appears once"
    assert "2 of 2 tasks are still queued or run" in err
    assert queue.views.stats().num_queued == 2
