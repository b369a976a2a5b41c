"""Commands that show the dispatcher, as users type them."""

import pytest

from agent_layer.schema.task import Task


def test_tasks_count_what_their_rollouts_do(harness, agent_layer, read_rows):
    harness.add("a", group_size=3)
    harness.queue.add([Task(id="a", run="r", group_size=2)], round_index=1)
    harness.add("b", run="s")
    harness.claim(run="r")

    shown = read_rows("tasks")
    assert [(row["task_id"], row["run"], row["rollouts"]) for row in shown] == [
        ("a", "r", {"leased": 1, "queued": 4}),
        ("b", "s", {"queued": 1}),
    ]
    assert (shown[0]["num_groups"], shown[0]["group_size"]) == (2, 5)
    _, out, _ = agent_layer("tasks", "--run", "s")
    assert out.splitlines()[:2] == [
        "run s: 1 queued, 0 with workers",
        "no worker is up: 'agent-layer work TARGET' starts one",
    ]
    assert out.splitlines()[3].startswith("b ")


def test_that_nobody_works_is_said_until_somebody_does(harness, agent_layer):
    harness.add("a", group_size=2)
    looks = ("tasks", "rollouts", "groups")
    assert all("no worker is up" in agent_layer(look)[1] for look in looks)

    harness.queue.heartbeat("w", b"{}", [])
    assert all("no worker is up" not in agent_layer(look)[1] for look in looks)


def test_that_nobody_who_is_up_offers_what_is_needed_is_said(harness, agent_layer):
    harness.add("a", group_size=2, needs=["gpu", "net"])
    harness.add("b", run="other", needs=["tpu"])
    harness.add("c")
    sentence = "2 rollouts in the queue: no worker that is up offers gpu and net; 'agent-layer workers' shows"
    harness.queue.heartbeat("one", b'{"offers":"gpu"}', [])
    harness.queue.heartbeat("other", b'{"offers":"net tpu"}', [])

    assert sentence in " ".join(agent_layer("tasks")[1].split())
    assert "tpu" not in agent_layer("tasks", "--run", "other")[1].partition("task ")[0]

    harness.queue.heartbeat("both", b'{"offers":"net gpu"}', [])
    assert "no worker that is up" not in agent_layer("tasks")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("tasks",), "'agent-layer submit TASKS.jsonl' queues tasks"),
        (("rollouts",), "'agent-layer submit TASKS.jsonl' queues tasks"),
        (("rollouts", "--status", "dead", "--status", "paused"), "none is dead or paused"),
        (("groups",), "'agent-layer groups --closed' shows what has ended"),
        (("groups", "--closed"), "none has closed lately"),
        (("runs",), "'agent-layer submit TASKS.jsonl --run NAME' begins one"),
        (("workers",), "'agent-layer work TARGET' starts one"),
    ],
)
def test_where_nothing_is_yet_it_says_what_to_type(agent_layer, arguments, sentence):
    status, out, err = agent_layer(*arguments)

    assert (status, err) == (0, "")
    assert sentence in out.splitlines()[-1]


def test_rollouts_show_holders_leases_retries_and_errors(harness, agent_layer):
    harness.add("a", group_size=3)
    held, failed = harness.claim(2, worker="w-7")
    harness.queue.heartbeat("w-7", b"{}", [(held, "running")])
    harness.queue.fail(failed, "infra", "the gateway is gone")

    _, out, _ = agent_layer("rollouts")
    running, retried, queued = (line.split() for line in out.splitlines()[2:])
    assert (running[1], running[5], running[6]) == ("running", "1", "w-7")
    assert retried[-9:-7] == ["1", "failed"]
    assert running[4] == "left"
    assert retried[1] == "retry"
    assert out.splitlines()[3].endswith("infra: the gateway is gone")
    assert queued[1] == "queued"


@pytest.mark.parametrize(
    ("status", "expected"),
    [("queued", "bd"), ("delayed", "b"), ("running", "a"), ("leased", "c"), ("dead", "e"), ("cancelled", "")],
)
def test_rollouts_of_one_status(harness, read_rows, status, expected):
    harness.give_up("e")
    for name in "abcd":
        harness.add(name)
    running, retried, _ = harness.claim(3)
    harness.queue.heartbeat("w", b"{}", [(running, "running")])
    harness.queue.fail(retried, "infra", "away")

    assert "".join(str(row["rollout_id"])[0] for row in read_rows("rollouts", "--status", status)) == expected


def test_lapsed_leases_are_told_from_living_ones(harness, agent_layer):
    harness.add("a")
    (lease,) = harness.claim()
    harness.redis.zadd(harness.keys.queue("leases"), {lease.rollout_id: 1})

    assert "lapsed" in agent_layer("rollouts")[1]


def test_groups_say_how_many_usable_ones_they_have_of_those_they_need(harness, agent_layer, read_rows):
    whole, open_one = harness.add("a", group_size=2, launch=3), harness.add("b", group_size=2)
    leases = harness.claim(4)
    for lease in [*leases[:2], leases[3]]:
        harness.end(lease)

    (row,) = read_rows("groups")
    assert (row["group_id"], row["num_usable"], row["group_size"]) == (open_one, 1, 2)
    _, out, _ = agent_layer("groups")
    assert "1 to go  1 of 2" in out
    (closed,) = read_rows("groups", "--closed")
    assert (closed["group_id"], closed["fill"], closed["num_surplus"]) == (whole, "whole", 1)
    assert "  closed  " in agent_layer("groups", "--closed")[1]
    assert " ago  " in agent_layer("groups", "--closed")[1]
    _, out, _ = agent_layer("groups", "show", whole, open_one)
    assert out.splitlines()[0] == "2 groups, 1 of them closed"
    assert agent_layer("groups", "show", whole, whole)[1].startswith("1 group, 1 of them closed")


def test_what_is_left_out_is_said(harness, agent_layer):
    for number in range(5):
        harness.add(f"t{number}")

    for command in ("tasks", "rollouts", "groups"):
        assert "only the first 3 are shown; --limit shows more" in agent_layer(command, "--limit", "3")[1]
        assert "--limit" not in agent_layer(command, "--limit", "5")[1]


def test_runs_that_are_left_out_may_have_work(harness, agent_layer):
    for number in range(3):
        harness.add(run=f"r{number}")

    assert "2 more runs not shown; --limit shows more" in agent_layer("runs", "--limit", "1")[1]
    assert "1 more run not shown" in agent_layer("runs", "--limit", "2")[1]
    assert "--limit" not in agent_layer("runs", "--limit", "3")[1]


def test_runs_say_why_they_are_paused_what_fails_and_what_finishing_first_costs(harness, agent_layer):
    harness.add("a", run="r", launch=2)
    slow, quick = harness.claim(2, run="r")
    group = harness.keys.queue("r", slow.rollout_id)
    harness.redis.hincrby(group, "began", -60_000)
    harness.redis.hincrby(harness.keys.queue("r", quick.rollout_id), "began", -10_000)
    harness.end(quick)
    harness.give_up("b", run="s", errors=["infra: away", "user: broken"])
    harness.dispatcher.pause("s", why="the price of oil")
    harness.dispatcher.share("r", weight=3, quota=7)

    _, out, _ = agent_layer("runs")
    lines = out.splitlines()
    assert lines[0].startswith("2 runs, 1 of them paused; 1 rollouts accepted a minute")
    cells = dict(zip(lines[1].split("  "), lines[2].split("  "), strict=False))
    assert cells["run"] == "r"
    assert "0 of 7" in lines[2]
    assert "run s is paused: the price of oil" in out
    assert "run s: failed attempts by cause: 2 infra; 100% of the newest 2 failed, above 50% of 64" in out
    took = "rollouts that count took 10s, surplus was cut off after 1m0s, 6.0 times as long"
    assert f"run r: {took}: what is trained on is biased towards what ends early" in out


def test_workers_are_up_draining_or_silent(harness, agent_layer, read_rows):
    for name in ("up-1", "old-1", "gone-1"):
        harness.queue.heartbeat(name, b'{"slots": 4, "held": 2, "offers": "agent:a"}', [])
    harness.redis.zadd(harness.keys.queue("workers"), {"gone-1": 1_000}, gt=False)
    now = harness.dispatcher.stats().now
    harness.redis.zadd(harness.keys.queue("workers"), {"gone-1": round((now - 300) * 1000)})

    assert agent_layer("workers", "drain", "old-1")[:2] == (
        0,
        "told 1 worker to end; 'agent-layer workers --watch' shows when they are gone\n",
    )
    _, out, _ = agent_layer("workers")
    assert out.splitlines()[0] == "3 workers, 1 silent, 1 draining; 4 rollouts in 8 slots"
    assert sorted(line.split()[1] for line in out.splitlines()[2:]) == ["draining", "silent", "up"]
    assert [row["is_draining"] for row in read_rows("workers") if row["worker"] == "old-1"] == [True]
    assert {row["worker"]: row["held"] for row in read_rows("workers")} == {"up-1": 2, "old-1": 2, "gone-1": 0}
    assert agent_layer("workers", "drain", "--all")[1].startswith("told 3 workers")
    status, _, err = agent_layer("workers", "drain", "no-such")
    assert (status, err.count("\n")) == (2, 1)


def test_a_look_goes_through_more_than_one_page(harness, read_rows):
    harness.queue.add([Task(id=f"t{number}", run="r" if number % 3 else "s", group_size=4) for number in range(1_200)])
    harness.claim(256, run="r")
    harness.claim(256, run="r")

    assert len(read_rows("groups", "--run", "s", "--limit", "1000")) == 400
    assert len(read_rows("rollouts", "--limit", "9999")) == 4_800
    leased = read_rows("rollouts", "--status", "leased", "--limit", "9999")
    assert len({row["rollout_id"] for row in leased}) == 512
    assert (
        sum(row["rollouts"]["leased"] for row in read_rows("tasks", "--limit", "9999") if "leased" in row["rollouts"])
        == 512
    )


def test_a_sandbox_that_ends_too_early_is_refused_with_the_number_of_its_line(harness, agent_layer, tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"input":1}\n{"input":2,"limits":{"sandbox_seconds":60,"wall_seconds":50}}\n')

    status, _, err = agent_layer("submit", str(path))

    assert status == 2
    assert "tasks.jsonl line 2: expected sandbox_start_seconds (60), wall_seconds (50)" in " ".join(err.split())
    assert harness.dispatcher.stats().num_queued == 0
