"""Commands that steer the dispatcher, as users type them."""

import pytest


def test_every_error_of_the_dead_is_shown_with_its_attempt(harness, agent_layer, read_rows):
    rollout_id = harness.give_up(errors=["infra: first", "infra: second\n  in two lines", "user: last"])

    _, out, _ = agent_layer("dead")
    assert "user: last" in out
    assert "infra: first" not in out
    _, out, _ = agent_layer("dead", "list", "--errors")
    assert out.startswith(f"{rollout_id}  run r, died ")
    assert out.index("attempt 0: infra: first") < out.index("attempt 1: infra: second") < out.index("attempt 2: user")
    (row,) = read_rows("dead", "list")
    assert (row["errors"][2], row["error_attempts"]) == ("user: last", [0, 1, 2])


def test_the_dead_are_tried_again_where_it_says(harness, agent_layer):
    one, other = harness.give_up("a"), harness.give_up("b", run="s")

    status, out, _ = agent_layer("dead", "retry", "--run", "s")
    assert (status, out.splitlines()[0]) == (0, "1 rollout will be tried again in 1 group")
    assert harness.group(out.splitlines()[1]).task_id == "b"
    assert [state.rollout_id for state in harness.dispatcher.dead()] == [one]
    status, _, err = agent_layer("dead", "retry", one, other)
    assert (status, err.count("\n")) == (2, 1)
    assert f"rollout {other}: expected one that was given up" in err
    assert agent_layer("dead", "retry", "--all")[1].startswith("1 rollout will")
    assert agent_layer("dead", "retry", "--all")[1].startswith("0 rollouts will")


def test_the_dead_are_dropped(harness, agent_layer):
    one, _ = harness.give_up("a"), harness.give_up("b")

    assert agent_layer("dead", "drop", one)[:2] == (0, "dropped 1 dead rollout\n")
    assert agent_layer("dead", "drop", "--all", "--yes")[:2] == (0, "dropped 1 dead rollout\n")
    assert agent_layer("dead")[1].splitlines()[1] == "none"


@pytest.mark.parametrize("arguments", [("retry",), ("drop", "x", "--all"), ("retry", "--all", "--run", "r")])
def test_which_of_the_dead_are_meant_has_to_be_said_once(agent_layer, arguments):
    status, _, err = agent_layer("dead", *arguments)

    assert (status, err.count("\n")) == (2, 1)
    assert "expected names, --all or --run" in err


def test_a_run_is_paused_shared_and_resumed(harness, agent_layer):
    harness.add("a")

    assert agent_layer("runs", "pause", "r", "--why", "new weights")[:2] == (
        0,
        "run r is paused; 0 rollouts that workers have go on\n",
    )
    assert harness.claim() == []
    assert harness.run().paused == "new weights"
    assert agent_layer("runs", "resume", "r")[1] == "run r goes on\n"
    assert agent_layer("runs", "resume", "r")[1] == "run r was not paused; it goes on\n"
    assert agent_layer("runs", "share", "r", "--weight", "2.5", "--quota", "8")[1] == (
        "run r has weight 2.5 and quota 8\n"
    )
    assert agent_layer("runs", "share", "r", "--quota", "0")[1] == "run r has weight 2.5 and no quota\n"


def test_a_reason_without_blanks_is_shown_as_far_as_there_is_room(harness, agent_layer):
    harness.add()
    agent_layer("runs", "pause", "r", "--why", "/".join(["path"] * 1000))

    assert "run r is paused: path/path" in agent_layer("runs")[1]
    assert len(agent_layer("runs")[1]) < 1000


def test_groups_are_cancelled_by_name_or_by_run(harness, agent_layer):
    one, _ = harness.add("a", group_size=2), harness.add("b", group_size=3)
    harness.add("c", run="s")

    assert agent_layer("groups", "cancel", one)[1] == "cancelled 2 rollouts of 1 group\n"
    assert agent_layer("groups", "cancel", "--run", "r")[1] == "cancelled 3 rollouts of 1 group\n"
    assert agent_layer("groups", "cancel", harness.add("alone"))[1] == "cancelled 1 rollout of 1 group\n"
    assert [group.run for group in harness.dispatcher.groups()] == ["s"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("groups", "--run", "nobody"), "run 'nobody': expected one that tasks were submitted to"),
        (("runs", "pause", "nobody"), "run 'nobody': expected one that tasks were submitted to"),
        (("runs", "share", "nobody"), "expected --weight or --quota"),
        (("dead", "list", "--run", "nobody"), "run 'nobody'"),
        (("groups", "show", "x.1"), "group x.1: expected one that was submitted"),
        (("groups", "cancel"), "expected names or --run, found none"),
        (("groups", "cancel", "x.1"), "group x.1: expected one that was submitted"),
        (("rollouts", "--status", "sleepy"), "--status sleepy: expected one of queued"),
        (("tasks", "--limit", "0"), "--limit"),
        (("groups", "vanish"), "vanish"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(agent_layer, arguments, sentence):
    status, out, err = agent_layer(*arguments)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
