"""A whole answer of SGLang's, told whole or as a stream, is the same answer in the gateway's words."""

import json
from random import Random

import pytest

from agent_layer.errors import EngineError
from agent_layer.gateway.calls.whole_replies import translate_answer, write_events
from agent_layer.gateway.dialects.chat import read_request
from agent_layer.gateway.dialects.chat_answer import read_answer
from agent_layer.gateway.dialects.chat_stream import ChatStream

REQUEST = read_request(b'{"messages": [{"role": "user", "content": "go"}]}')
TEXTS = ["", "so be it", 'a "token_ids": [1, 2], in a text', "😀 \u2028 \\", "\n\ndata: {}\n\n"]


def make_choice(index, random):
    ids = [random.randrange(1 << 18) for _ in range(random.randrange(1, 6))]
    message = {"role": "assistant", "content": random.choice(TEXTS), "reasoning_content": random.choice([None, *TEXTS])}
    if random.random() < 0.5:
        calls = range(random.randrange(1, 4))
        call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
        message["tool_calls"] = [{"id": f"c{one}", "index": None, **call} for one in calls]
    entries = [{"token": "a", "bytes": [97], "logprob": -random.random(), "top_logprobs": []} for _ in ids]
    return {
        "index": index,
        "message": message,
        "logprobs": {"content": entries},
        "finish_reason": random.choice(["stop", "length", "tool_calls", "abort", None]),
        "matched_stop": random.choice([None, 151645, "stop"]),
        "prompt_token_ids": [1, 2, 3],
        "response_token_ids": ids,
    }


def make_answer(random):
    choices = [make_choice(index, random) for index in range(random.randrange(1, 4))]
    num_sampled = sum(len(choice["response_token_ids"]) for choice in choices)
    usage = {"prompt_tokens": 3, "completion_tokens": num_sampled, "total_tokens": 3 + num_sampled}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}
    return answer | {"metadata": {"weight_version": "7"}, "sglext": {"input_ids": [1, 2, 3]}}


def without_places(action):
    """An action as a whole answer tells it: pieces of calls have places, and nothing is left open."""
    message = dict(action.message)
    message["tool_calls"] = [
        {name: one for name, one in call.items() if name != "index"} for call in message.get("tool_calls") or ()
    ]
    message["reasoning_content"] = message.get("reasoning_content") or None
    return message, list(action.response_token_ids), list(action.logprobs), action.finish_reason


@pytest.mark.parametrize("seed", range(50))
def test_a_stream_of_a_whole_answer_says_the_same(seed):
    made = make_answer(Random(seed))
    body = translate_answer(json.dumps(made).encode())
    num_choices = len(made["choices"])

    whole, stream = read_answer(body, REQUEST, 7, num_choices), ChatStream(REQUEST, num_choices)
    shown = stream.feed(write_events(body, with_usage=True))
    streamed = stream.answer(7)

    for answer in (whole, streamed):
        assert list(answer.prompt_token_ids) == [1, 2, 3]
        assert answer.findings == []
        assert answer.usage == whole.usage
        assert answer.stop_reason == made["choices"][0]["matched_stop"]
        for action, choice in zip(answer.actions, made["choices"], strict=True):
            assert list(action.response_token_ids) == choice["response_token_ids"]
            assert action.message["content"] == choice["message"]["content"]
            assert action.policy_versions == [(7, len(choice["response_token_ids"]))]
    assert list(map(without_places, streamed.actions)) == list(map(without_places, whole.actions))
    assert stream.is_done
    assert b"sglext" not in shown + whole.body
    assert b"response_token_ids" not in shown + whole.body


def test_two_prompts_of_one_answer_are_none():
    made = make_answer(Random(1)) | {"choices": [make_choice(0, Random(1)), make_choice(1, Random(2))]}
    made["choices"][1]["prompt_token_ids"] = [1, 2]

    assert read_answer(translate_answer(json.dumps(made).encode()), REQUEST, 0, 2).prompt_token_ids is None


GARBAGE = [b"", b"null", b"[]", b"{", b"\xff", b'{"choices": null}', b'{"choices": [1]}', b"[" * 20_000]


@pytest.mark.parametrize("body", GARBAGE)
def test_what_is_no_answer_stays_for_the_record_and_makes_no_stream(body):
    assert translate_answer(body) == body
    with pytest.raises(EngineError, match="expected a chat completion"):
        write_events(body, with_usage=False)


def test_half_a_character_ends_no_stream():
    body = b'{"choices": [{"index": 0, "message": {"content": "x \\ud800"}, "finish_reason": "stop"}]}'

    stream = ChatStream(REQUEST)
    stream.feed(write_events(translate_answer(body), with_usage=False))

    assert stream.answer(0).actions[0].message["content"] == read_answer(body, REQUEST, 0).actions[0].message["content"]
