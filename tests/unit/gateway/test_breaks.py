"""A prompt that breaks with its history's tokens reports why; one that continues or starts over reports nothing."""

import json

import pytest
from hypothesis import given, strategies as st

from agent_layer.gateway.rollouts.answers import AnsweredMessages, Returned, hash_answer
from agent_layer.gateway.rollouts.divergence import History, cause_of_break


def calls(arguments):
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": arguments}]}


def assistant(text):
    return {"role": "assistant", "content": text}


@st.composite
def histories(draw):
    indices = draw(st.lists(st.integers(0, 12), unique=True, max_size=6).map(sorted))
    forms = st.sampled_from(["same", "reserialised", "unreasoned", "unknown"])
    answers = [Returned(index, form := draw(forms), None if form == "unknown" else index) for index in indices]
    num_messages = (indices[-1] if indices else 0) + 2
    return History(
        answers=answers,
        num_messages=num_messages,
        num_equal=draw(st.integers(0, num_messages)),
        num_continued=draw(st.integers(-1, num_messages)),
        longest=draw(st.integers(0, 14)),
    )


@given(histories())
def test_a_prompt_that_continues_the_last_answer_is_no_break(history):
    if (
        history.answers
        and history.num_continued >= history.answers[-1].index
        and history.num_equal <= (history.num_continued)
    ):
        assert cause_of_break(history) is None


@given(histories())
def test_what_was_said_and_is_not_continued_is_a_break(history):
    missed = [one for one in history.answers if one.form != "unknown" and one.index > history.num_continued]

    if missed:
        assert cause_of_break(history) is not None


@given(histories())
def test_without_anything_that_was_said_before_a_conversation_begins(history):
    if not history.num_equal and all(one.form == "unknown" for one in history.answers):
        assert cause_of_break(history) in (None, "compaction")
        assert history.longest > history.num_messages or cause_of_break(history) is None


@pytest.mark.parametrize(
    ("history", "cause"),
    [
        (History(answers=[Returned(1, "same", 1)], num_messages=3, num_equal=1, longest=1), "template"),
        (History(answers=[Returned(1, "reserialised", 1)], num_messages=3, num_equal=1), "reserialised_tool_call"),
        (History(answers=[Returned(1, "unreasoned", 1)], num_messages=3, num_equal=1), "dropped_reasoning"),
        (History(answers=[Returned(1, "unknown")], num_messages=3, num_equal=1, longest=1), "edited_history"),
        # a question in the middle was changed: its own answer, and those before it, stand where they stood
        (
            History(
                answers=[Returned(1, "same", 1), Returned(3, "same", 3)], num_messages=5, num_equal=1, num_continued=1
            ),
            "edited_history",
        ),
        # the newest answers are kept, what was before them is summarised
        (History(answers=[Returned(2, "same", 9)], num_messages=4), "compaction"),
        # only the question of old is kept
        (History(answers=[], num_messages=3, num_equal=2, longest=8), "compaction"),
        (History(answers=[Returned(2, "unknown")], num_messages=4, num_equal=2, longest=8), "compaction"),
        # examples that the agent brings along
        (History(answers=[Returned(1, "unknown"), Returned(3, "unknown")], num_messages=5), None),
        (History(answers=[], num_messages=2, num_equal=1, longest=1), None),
    ],
)
def test_each_cause_is_told_apart(history, cause):
    assert cause_of_break(history) == cause


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), json_values, min_size=1, max_size=4), st.booleans())
def test_another_text_of_the_same_arguments_is_recognised(arguments, is_escaped):
    recall, written = AnsweredMessages(), json.dumps(arguments, ensure_ascii=is_escaped)
    recall.add(calls({"name": "add", "arguments": written}), "talk", 1, "here")
    again = json.dumps(dict(reversed(arguments.items())), indent=1)

    assert recall.recognise(hash_answer(1, calls({"name": "add", "arguments": written}))).form == "same"
    assert recall.recognise(hash_answer(1, calls({"name": "add", "arguments": again}))).form == "reserialised"
    assert recall.recognise(hash_answer(1, calls({"name": "sub", "arguments": written}))).form == "unknown"


def test_the_form_of_a_text_does_not_matter():
    recall = AnsweredMessages()
    recall.add(assistant("hello"), "talk", 3, "here")

    parts = {"role": "assistant", "content": [{"type": "text", "text": "hello"}], "refusal": None}
    assert recall.recognise(hash_answer(1, parts)) == Returned(1, "same", 3)
    assert recall.recognise(hash_answer(1, assistant("hello!"))) == Returned(1, "unknown", None)
    assert (recall.longest("talk"), recall.longest("other")) == (3, 0)


def test_reasoning_that_was_dropped_is_told_apart_from_reasoning_that_was_changed():
    recall = AnsweredMessages()
    recall.add({"content": "yes", "reasoning": "hm"}, "talk", 1, "here")
    recall.add({"content": "no"}, "talk", 3, "there")

    forms = [("yes", {"reasoning_content": "hm"}), ("yes", {}), ("yes", {"reasoning": "so"}), ("no", {})]
    found = [recall.recognise(hash_answer(1, {**assistant(text), **more})).form for text, more in forms]
    assert found == ["same", "unreasoned", "unknown", "same"]


def test_long_arguments_are_compared_as_they_are_written():
    recall, written = AnsweredMessages(), json.dumps({"text": "x" * (1 << 20)})
    recall.add(calls({"name": "add", "arguments": written}), "talk", 1, "here")

    assert recall.recognise(hash_answer(1, calls({"name": "add", "arguments": written}))).form == "same"
    assert recall.recognise(hash_answer(1, calls({"name": "add", "arguments": f" {written}"}))).form == "unknown"
