"""Dispatcher views over time, and their fit into a terminal."""

import json
import re
import signal

import pytest

from agent_layer.dispatcher import Report
from agent_layer.schema.task import Task

from ....waiting import communicate, read_line, wait_for_exit


def lines_until(process, text):
    """What it writes, up to a line with that text."""
    for line in process.stdout:
        yield line
        if text in line:
            return


def test_watching_at_a_terminal_redraws_in_place_until_ctrl_c(queue, at_terminal):
    (group_id,) = queue.add([Task(id="a", run="r", group_size=2)])

    screen = at_terminal("groups", "--watch")
    screen.reads("2 to go")
    (lease,) = queue.claim("w", 1)
    queue.settle([Report(lease=lease, ending="completed")])
    screen.reads("1 to go")
    assert re.search(r"\x1b\[\d*A", screen.written), "the cursor goes up to draw over what was there"
    assert screen.written.count(group_id) >= 2
    screen.process.send_signal(signal.SIGINT)
    assert screen.ends() == 0
    assert "Traceback" not in screen.written


def test_watching_as_json_gives_rows_that_changed_and_names_those_that_went(queue, start):
    first, second = queue.add([Task(id="a", run="r", group_size=2), Task(id="b", run="r")])

    watching = start("groups", "--watch", "--format", "jsonl")
    rows = [json.loads(read_line(watching)) for _ in range(2)]
    assert [row["group_id"] for row in rows] == [first, second]
    queue.settle([Report(lease=lease, ending="completed") for lease in queue.claim("w", 1)])
    assert json.loads(read_line(watching))["num_open"] == 1
    queue.settle([Report(lease=lease, ending="completed") for lease in queue.claim("w", 1)])
    assert json.loads(read_line(watching)) == {"group_id": first, "is_shown": False}
    watching.send_signal(signal.SIGINT)
    out, err = communicate(watching)
    assert (watching.returncode, out, err) == (0, "", "")


def test_watching_without_a_terminal_writes_a_table_for_each_change_and_ends_with_its_reader(queue, start):
    queue.add([Task(id="a", run="r", group_size=2)])

    watching = start("groups", "--watch")
    first = list(lines_until(watching, " to go"))
    queue.settle([Report(lease=lease, ending="completed") for lease in queue.claim("w", 1)])
    second = list(lines_until(watching, " to go"))
    assert "2 to go" in first[-1]
    assert second[0] == "\n"
    assert "1 to go" in second[-1]
    assert "\x1b" not in "".join([*first, *second])
    watching.stdout.close()
    queue.settle([Report(lease=lease, ending="completed") for lease in queue.claim("w", 1)])
    assert wait_for_exit(watching) == 0
    assert watching.stderr.read() == ""


@pytest.mark.parametrize(
    ("command", "columns"),
    [
        *((one, 100) for one in ("tasks", "rollouts", "groups", "runs", "workers", "dead")),
        ("rollouts", 80),
        ("runs", 140),
    ],
)
def test_no_look_wraps_its_table(queue, agent_layer, monkeypatch, command, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    queue.add([Task(id="0f" * 16, run="a-run-with-a-name", needs=["gpu"], group_size=2)])
    queue.heartbeat(
        "a-machine-with-a-name.example-4711:w0", b'{"slots": 8, "held": 1, "agent": "some.module:name"}', []
    )
    leases = queue.claim("a-machine-with-a-name.example-4711:w0", 2, ["gpu"])
    queue.fail(leases[0], "infra", "word " * 100, retryable=False)

    status, out, _ = agent_layer(command)
    lines = [line.rstrip() for line in out.splitlines()]
    (head,) = [at for at, line in enumerate(lines) if re.match(r"(task|rollout|group|run|worker) {2,}", line)]
    known = ("0f0f", "a-run", "a-machine")
    assert status == 0
    assert lines[head + 1].startswith(known)
    assert all(len(line) <= columns for line in lines)


def test_dropping_at_a_terminal_asks_first(queue, at_terminal):
    queue.add([Task(id="a", run="r")])
    (lease,) = queue.claim("w", 1)
    queue.fail(lease, "user", "broken", retryable=False)

    screen = at_terminal("dead", "drop", "--all")
    screen.reads("forget 1 dead rollout and all of their errors?")
    screen.types("n\n")
    assert screen.ends() == 1
    assert queue.views.stats().num_dead == 1
    screen = at_terminal("dead", "drop", "--all")
    screen.reads("[y/N]")
    screen.types("y\n")
    assert screen.ends() == 0
    assert queue.views.stats().num_dead == 0
