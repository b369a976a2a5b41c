import json

from hypothesis import given, strategies as st

from tracer.integrations.openai import CHAT

names = st.text("abc", min_size=1, max_size=4)
pieces = st.lists(st.text(max_size=4), max_size=4)
tool_calls = st.lists(st.tuples(names, names, pieces), max_size=3)
choices = st.lists(st.tuples(pieces, tool_calls), min_size=1, max_size=3)


def whole(choices):
    """One answer, as it comes when it is not streamed."""
    reported = [
        {"index": index, "message": make_message(texts, calls), "finish_reason": "stop"}
        for index, (texts, calls) in enumerate(choices)
    ]
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    return json.dumps({"model": "m", "choices": reported, "usage": usage}).encode()


def make_message(texts, calls):
    message = {"role": "assistant", "content": "".join(texts)}
    if calls:
        message["tool_calls"] = [make_call(name, call_id, "".join(arguments)) for name, call_id, arguments in calls]
    return message


def make_call(name, call_id, arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def streamed(choices):
    """The same answer in chunks, the choices one after the other."""
    for index, (texts, calls) in enumerate(choices):
        yield chunk(index, {"role": "assistant", "content": ""})
        for text in texts:
            yield chunk(index, {"content": text})
        for place, (name, call_id, arguments) in enumerate(calls):
            yield chunk(index, {"tool_calls": [{"index": place, **make_call(name, call_id, "")}]})
            for piece in arguments:
                yield chunk(index, {"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
        yield chunk(index, {}, "stop")
    yield json.dumps({"model": "m", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})


def chunk(index, delta, reason=None):
    return json.dumps({"model": "m", "choices": [{"index": index, "delta": delta, "finish_reason": reason}]})


@given(choices)
def test_a_stream_says_what_the_whole_answer_says(choices):
    assert CHAT.read_stream(streamed(choices), is_whole=True) == CHAT.read_answer(whole(choices))


def test_a_stream_that_was_cut_keeps_what_came():
    chunks = list(streamed([(["forty ", "two"], [])]))[:2]

    answer = CHAT.read_stream(chunks, is_whole=False)

    assert answer.status == "aborted"
    assert answer.actions[0].message["content"] == "forty "
    assert answer.actions[0].finish_reason is None


def test_what_is_no_answer_is_a_finding():
    assert CHAT.read_answer(b"<html>").findings == ["answer_not_understood"]
    assert CHAT.read_stream(['{"choices": 7}'], is_whole=False).findings == ["answer_not_understood"]


def test_a_chunk_that_cannot_be_read_takes_nothing_from_the_others():
    chunks = [*streamed([(["forty ", "two"], [("f", "c", ["{}"])])]), '{"choices": null}']

    answer = CHAT.read_stream(chunks, is_whole=True)

    assert answer.findings == ["answer_not_understood"]
    assert (answer.status, answer.actions) == (
        "ok",
        CHAT.read_answer(whole([(["forty two"], [("f", "c", ["{}"])])])).actions,
    )


def test_all_that_shapes_the_answer_is_sampling():
    request = CHAT.read_request(
        {"messages": [1], "tools": [2], "model": "m", "stream": True, "n": 2, "stop": ["x"], "temperature": 0}
    )

    assert (request.messages, request.tools, request.model) == ([1], [2], "m")
    assert request.sampling == {"n": 2, "stop": ["x"], "temperature": 0}
