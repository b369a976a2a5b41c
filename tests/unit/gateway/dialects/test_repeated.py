"""What a conversation repeats is read once. That shows nowhere: every reading of a body is like the first."""

import json
import tracemalloc
from itertools import count

import msgspec
import pytest

from agent_layer.errors import AgentLayerError
from agent_layer.gateway.dialects.google import Google
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.translation import TextMemo, messages, responses
from agent_layer.translation.tools import ANTHROPIC_TOOLS, OPENAI_TOOLS

from ..talking import DIALECTS, Talk
from .test_odd_members import BODIES, change, find_paths

NUMBERS = count()


def read(dialect, body, memory):
    """Return all that is read of a body, or what is wrong with it."""
    spoken = Google(model="m") if dialect == "google" else DIALECTS[dialect]
    try:
        return msgspec.structs.asdict(spoken.read(json.dumps(body).encode(), memory))
    except (AgentLayerError, RefusedError) as error:
        return str(error)


@pytest.mark.parametrize("dialect", BODIES)
def test_every_reading_is_like_the_first(dialect):
    talk, body = Talk(), BODIES[dialect]
    for path in filter(None, find_paths(body)):
        for odd in ("del", None, [], {}, 7, f"text {next(NUMBERS)}", {"type": f"kind {next(NUMBERS)}"}):
            changed = change(body, path, odd)
            first = read(dialect, changed, talk.memory)
            assert read(dialect, changed, talk.memory) == first


def test_a_full_memo_is_emptied_and_keeps_no_error():
    names = []

    def find(name, text):
        names.append(name)
        return msgspec.json.decode(text, type=str)

    memo = TextMemo(find, max_bytes=1 << 10, measure=len)
    for _ in range(2):
        with pytest.raises(msgspec.ValidationError):
            memo.find("number", msgspec.Raw(b"1"))
    for name in ["a", "b", "a", "b"]:
        assert memo.find(name, msgspec.Raw(b'"t"')) == "t"
    for number in range(5):
        memo.find(f"{number}", msgspec.Raw(b'"t"'))
    memo.find("a", msgspec.Raw(b'"t"'))

    assert names[:4] == ["number", "number", "a", "b"]
    assert names[-1] == "a"


HUGE = {"x": [[]] * 5_000}
LARGE = {
    "functions": lambda name: {"tools": [{"type": "function", "name": name, "parameters": HUGE}]},
    "hosted tools": lambda name: {"tools": [{"type": f"{name} {at}"} for at in range(2_000)]},
    "schemas": lambda name: {"messages": [], "tools": [{"name": name, "input_schema": HUGE}]},
    "refused items": lambda name: {"input": [{"type": name * 50_000}]},
    "refused blocks": lambda name: {"messages": [{"role": "assistant", "content": [{"type": name * 50_000}]}]},
}
"""Members of a body, by a name in them, from which much is made of few bytes."""


@pytest.mark.parametrize("kind", LARGE)
def test_what_is_remembered_takes_a_bounded_place(kind, monkeypatch):
    for memo in (ANTHROPIC_TOOLS, OPENAI_TOOLS, messages._TURNS, responses._TURNS):
        for name, value in (("_found", {}), ("_num_bytes", 0), ("_max_bytes", 1 << 20)):
            monkeypatch.setattr(memo, name, value)
    talk = Talk()
    tracemalloc.start()
    for number in range(40):
        body = LARGE[kind](f"{number:04}")
        read("messages" if "messages" in body else "responses", body, talk.memory)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size < 4 << 20
