"""Assembly: parts in any order yield one step, and deltas yield the engine's ids again."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, PromptDelta, StepPart, StepState
from agent_layer.schema.trajectory import assemble_step, assemble_steps, assemble_trajectory

ENDED = Outcome(trajectory_id="t-0", run="r", status="completed", ended_at=9.0)
BEGUN = ("begun", "start")


def part(call_id="c", source="gateway", phase="end", at=1.0, **fields):
    return StepPart(trajectory_id="t-0", call_id=call_id, run="r", source=source, phase=phase, at=at, **fields)


def test_each_field_comes_from_the_highest_authority_that_knows_it():
    parts = [
        part(source="handler", phase="start", agent="writer", state=StepState(framework="f", messages=["wrong"])),
        part(phase="start", at=1.0, state=StepState(messages=["m"]), model="qwen"),
        part(source="hook", agent="hooked", model="asked", actions=[Action(message={"content": "re-serialised"})]),
        part(at=3.0, actions=[Action(response_token_ids=TokenIds([5]))], status="ok", capture_level="tokens"),
    ]

    step = assemble_step(parts)

    assert (step.agent, step.model, step.status, step.capture_level) == ("hooked", "qwen", "ok", "tokens")
    assert step.state == StepState(messages=["m"], framework="f")
    assert step.action == Action(response_token_ids=TokenIds([5]), message={"content": "re-serialised"})
    assert (step.started_at, step.ended_at) == (1.0, 3.0)


def test_a_call_without_an_end_is_not_known_to_have_ended():
    step = assemble_step([part(phase="start")])

    assert (step.status, step.ended_at) == (None, None)


def test_each_choice_of_a_call_is_a_step():
    steps = assemble_steps([part(actions=[Action(finish_reason="stop"), Action(finish_reason="length")])])

    assert [(step.index, step.choice, step.action.finish_reason) for step in steps] == [
        (0, 0, "stop"),
        (1, 1, "length"),
    ]


def test_findings_of_all_layers_are_kept():
    assert assemble_step([part(findings=["b"]), part(source="hook", findings=["a", "b"])]).findings == ["a", "b"]


@st.composite
def token_trees(draw):
    """Calls as an engine would see them: (call id, parent position or None, prompt ids, response ids)."""
    ids = st.lists(st.integers(0, 99), min_size=1, max_size=4)
    calls: list[tuple[str, int | None, list[int], list[int]]] = []
    for number in range(draw(st.integers(1, 7))):
        parent = draw(st.none() | st.integers(0, number - 1)) if number else None
        prefix = [] if parent is None else [*calls[parent][2], *calls[parent][3]]
        calls.append((f"c{number}", parent, prefix + draw(ids), draw(ids)))
    return calls


def make_parts(calls):
    for at, (call_id, parent, prompt, response) in enumerate(calls):
        prefix_length = 0 if parent is None else len(calls[parent][2]) + len(calls[parent][3])
        delta = PromptDelta(
            delta=TokenIds(prompt[prefix_length:]),
            parent_call=None if parent is None else calls[parent][0],
            prefix_length=prefix_length,
        )
        yield part(call_id, phase="start", at=at)
        yield part(call_id, at=at + 0.5, prompt=delta, actions=[Action(response_token_ids=TokenIds(response))])


@given(token_trees(), st.randoms())
def test_deltas_along_a_path_give_back_the_engines_ids(calls, random):
    records = list(make_parts(calls)) * 2
    random.shuffle(records)

    trajectory = assemble_trajectory("t-0", records)

    found = {
        step.call_id: (list(step.prompt_token_ids), list(step.action.response_token_ids)) for step in trajectory.steps
    }
    assert found == {call_id: (prompt, response) for call_id, _, prompt, response in calls}


@given(token_trees(), st.randoms())
def test_order_and_repetition_of_records_change_nothing(calls, random):
    records = [
        AttemptStarted(trajectory_id="t-0", rollout_id="t", attempt=0, run="r", task_id="t", started_at=0.0),
        *make_parts(calls),
        ENDED,
        Accepted(trajectory_id="t-0", rollout_id="t", run="r", accepted_at=9.0),
    ]
    shuffled = records * 2
    random.shuffle(shuffled)

    assert assemble_trajectory("t-0", shuffled) == assemble_trajectory("t-0", records)


@given(token_trees(), st.data())
def test_while_an_attempt_runs_only_steps_with_a_whole_path_are_shown(calls, data):
    arrived = [data.draw(st.sampled_from(["whole", "begun", "away"])) for _ in calls]
    how = {call_id: state for (call_id, *_), state in zip(calls, arrived, strict=True)}
    records = [
        part for part in make_parts(calls) if how[part.call_id] == "whole" or (how[part.call_id], part.phase) == BEGUN
    ]

    trajectory = assemble_trajectory("t-0", records)

    prompts = {step.call_id: step.prompt_token_ids for step in trajectory.steps}
    reached = set()
    for number, (call_id, parent, prompt, _) in enumerate(calls):
        if arrived[number] == "whole" and (parent is None or parent in reached):
            reached.add(number)
            assert list(prompts[call_id]) == prompt
        else:
            assert prompts.get(call_id) is None
    assert [step.index for step in trajectory.steps] == list(range(len(trajectory.steps)))


def test_a_missing_parent_of_an_ended_attempt_is_named():
    orphan = part("c1", prompt=PromptDelta(delta=TokenIds([1]), parent_call="c0", prefix_length=3))

    assert assemble_trajectory("t-0", [orphan]).steps == []
    for begun in ([], [part("c0", phase="start", at=0.0)]):
        with pytest.raises(CorruptRecordError, match="step c1 of trajectory t-0: the step c0"):
            assemble_trajectory("t-0", [*begun, orphan, ENDED])


def test_a_parent_of_another_length_is_named():
    parent = part("c0", at=0.0, prompt=PromptDelta(delta=TokenIds([1])), actions=[Action(logprobs=Logprobs([-1.0]))])
    child = part("c1", prompt=PromptDelta(delta=TokenIds([1]), parent_call="c0", prefix_length=3))

    with pytest.raises(CorruptRecordError, match="should have 3 tokens, but its parent gives 1"):
        assemble_trajectory("t-0", [parent, child])


def test_a_long_conversation_does_not_recurse():
    calls, prompt = [], [1]
    for number in range(1500):
        calls.append((f"c{number}", number - 1 if number else None, prompt, [2]))
        prompt = [*prompt, 2]
    short = [msgspec.structs.replace(record) for record in make_parts(calls)]

    assert len(assemble_trajectory("t-0", short).steps) == 1500
