"""What says nothing about an answer is no sampling and no finding, whichever dialect it comes in."""

import json

import pytest

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.completions import Completions
from agent_layer.gateway.dialects.messages import Messages
from agent_layer.gateway.dialects.responses import Responses

HELLO = [{"role": "user", "content": "hi"}]
DIALECTS = {
    "chat": (Completions(), {"model": "m", "messages": HELLO}),
    "messages": (Messages(), {"model": "m", "max_tokens": 9, "messages": HELLO}),
    "responses": (Responses(), {"model": "m", "input": "hi"}),
}
HARMLESS = {
    "metadata": {"user_id": "u", "session_id": "s"},
    "client_metadata": {"x-codex-installation-id": "i"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "user": "u",
    "safety_identifier": "s",
    "service_tier": "auto",
    "speed": "fast",
    "store": False,
    "usage": {"include": True},
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "cache_control": {"type": "ephemeral"},
    "diagnostics": {"a": 1},
    "inference_geo": "eu",
    "litellm_session_id": "s",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_harmless_members_are_no_sampling_and_no_finding(dialect):
    reader, body = DIALECTS[dialect]

    plain, full = [reader.read(json.dumps(body | more).encode(), "r-0") for more in ({}, HARMLESS)]

    assert full.not_applied == []
    assert (full.sampling, full.sampling_asked) == (plain.sampling, plain.sampling_asked)


EDITS = [
    {"edits": [{"type": "clear_tool_uses_20250919"}]},
    {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]},
    [{"type": "compaction", "compact_threshold": 1000}],
]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_an_edit_of_the_context_that_is_not_made_is_named(dialect, edit):
    reader, body = DIALECTS[dialect]

    request = reader.read(json.dumps(body | {"context_management": edit}).encode(), "r-0")

    assert request.not_applied == ["context_management"]


@pytest.mark.parametrize("n", [-1, 0, 129, 10**9, 2**63 - 1, 1.5, "2", True, [1]])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_number_of_answers_that_no_engine_gives_is_refused_at_the_edge(dialect, n):
    reader, body = DIALECTS[dialect]

    with pytest.raises(BadInputError, match=r"expected n "):
        reader.read(json.dumps(body | {"n": n}).encode(), "r-0")


@pytest.mark.parametrize("n", [None, 1, 2, 128])
def test_other_numbers_pass(n):
    reader, body = DIALECTS["chat"]

    assert reader.read(json.dumps(body | {"n": n}).encode(), "r-0").sampling == {"n": n}
