"""What of a trajectory should alarm, and what of a run's calls is counted."""

import pytest

from agent_layer.schema.findings import find_alarms, is_empty_answer, prefix_break_cause
from agent_layer.schema.record import TokenIds
from agent_layer.schema.rollout import AttemptStarted
from agent_layer.schema.step import Action, Step, StepPart
from agent_layer.schema.trajectory import Trajectory
from agent_layer.store.maintenance.call_stats import count_call_stats, describe_call_stats

ANSWERED = Action(message={"content": "hi"}, response_token_ids=TokenIds([1]))


def make_step(index, **fields):
    about = {"status": "ok", "capture_level": "tokens", "sources": ["gateway"], "action": ANSWERED}
    return Step(
        trajectory_id="r-0", call_id=f"c{index}", choice=0, run="run", started_at=1.0, index=index, **about | fields
    )


def kinds(*steps):
    return [alarm.kind for alarm in find_alarms(Trajectory(trajectory_id="r-0", steps=list(steps)))]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"action": Action(message={"content": "hi"}, response_token_ids=TokenIds())}, "zero_tokens"),
        ({"capture_level": "text"}, "no_tokens"),
        ({"findings": ["prefix_break: template"]}, "forks"),
        ({"findings": ["prefix_break"]}, "forks"),
        ({"sources": ["handler"]}, "turns"),
    ],
)
def test_each_trouble_raises_its_alarm(fields, kind):
    assert kinds(make_step(0), make_step(1, **fields)) == [kind]


@pytest.mark.parametrize(
    ("started", "levels", "found"),
    [
        ({"split": "train", "group_id": "g"}, ["text", "text"], ["no_tokens"]),
        ({"split": "train"}, ["tokens", "text"], ["no_tokens"]),
        ({"split": "train"}, ["text", "text"], []),
        ({"split": "eval", "group_id": "g"}, ["text", "text"], []),
        ({"split": "eval", "group_id": "g"}, ["tokens", "text"], []),
    ],
)
def test_a_trace_that_nothing_trains_needs_no_tokens(started, levels, found):
    about = AttemptStarted(
        trajectory_id="r-0", rollout_id="r", run="run", attempt=0, task_id="t", started_at=1.0, **started
    )
    steps = [make_step(index, capture_level=level) for index, level in enumerate(levels)]

    alarms = find_alarms(Trajectory(trajectory_id="r-0", started=about, steps=steps))

    assert [alarm.kind for alarm in alarms] == found


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"sources": ["gateway", "handler"]},
        {"capture_level": "text", "role": "aux"},
        {"status": "aborted", "action": Action()},
        {"status": "error", "sources": ["hook"], "action": Action()},
        {"findings": ["something else"]},
    ],
)
def test_what_is_well_or_known_to_have_failed_raises_none(fields):
    assert kinds(make_step(0), make_step(1, **fields)) == []


def test_one_fork_among_many_steps_is_life():
    assert kinds(make_step(0, findings=["prefix_break"]), *(make_step(index) for index in range(1, 5))) == []


@pytest.mark.parametrize("trouble", [{"findings": ["prefix_break"]}, {"capture_level": "text"}, {"sources": ["hook"]}])
def test_an_alarm_is_short_whatever_the_rollouts_length(trouble):
    steps = [make_step(0), *(make_step(index, **trouble) for index in range(1, 3000))]

    (alarm,) = find_alarms(Trajectory(trajectory_id="r-0", steps=steps))

    assert len(alarm.detail) < 160
    assert "steps 1, 2, 3, 4, 5, and 2994 more" in alarm.detail


def test_agents_without_a_gateway_raise_no_alarm_about_turns():
    assert kinds(make_step(0, sources=["hook"]), make_step(1, sources=["handler"])) == []


@pytest.mark.parametrize(
    ("finding", "cause"), [("prefix_break", "unknown"), ("prefix_break: edited", "edited"), ("x", None)]
)
def test_a_break_has_a_cause(finding, cause):
    assert prefix_break_cause(finding) == cause


def make_end(call_id, **fields):
    about = {"status": "ok", "capture_level": "tokens", "actions": [ANSWERED], "source": "gateway", "phase": "end"}
    return StepPart(trajectory_id="r-0", call_id=call_id, run="run", at=1.0, **about | fields)


def test_calls_are_counted_by_what_was_noticed():
    parts = [
        make_end("a"),
        make_end("b", findings=["prefix_break: template"]),
        make_end("c", actions=None),
        make_end("d", status="aborted", actions=None),
        make_end("e", source="handler"),
        make_end("f", phase="start"),
    ]

    assert is_empty_answer(parts[2])
    assert describe_call_stats(count_call_stats(parts)) == [
        "run run: 4 calls, 1 (25.0%) answered nothing, 1 (25.0%) broke their prefix: template, 1 (25.0%) cut off"
    ]
