"""A request of odd members is asked or refused with a sentence; none of them is an error of the gateway's own."""

import json
import random

import pytest

from agent_layer.errors import AgentLayerError
from agent_layer.gateway.dialects.google import Google
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.rollouts.media import check_media

from ..talking import Talk

TEXT = {"type": "text", "text": "q"}
SCHEMA = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "minLength": "1", "nullable": True}}}
FORMAT = {"type": "json_schema", "name": "n", "json_schema": {"name": "n", "schema": {}}, "schema": {}}
CHOSEN = {"type": "function", "name": "f", "function": {"name": "f"}}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": True}
DECLARED = {"name": "f", "input_schema": {}, "parameters": {}}
BODIES = {
    "chat": {
        "messages": [
            {"role": "user", "content": [TEXT]},
            {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "a", "content": "r"},
        ],
        "tools": [{"type": "function", "function": DECLARED}],
        "tool_choice": CHOSEN,
        "response_format": FORMAT,
        "context_management": {"edits": []},
    },
    "messages": {
        "system": [TEXT],
        "messages": [
            {"role": "user", "content": [TEXT, {"type": "image", "source": {"type": "base64", "data": "aaaa"}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            {"role": "user", "content": [RESULT]},
        ],
        "tools": [DECLARED, {"type": "web_search_20250305", "name": "w"}],
        "tool_choice": {"type": "tool", "name": "f"},
        "output_config": {"format": FORMAT, "effort": "low"},
        "thinking": {"type": "enabled", "budget_tokens": 5},
    },
    "responses": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "r"},
        ],
        "tools": [{"type": "function", **DECLARED}, {"type": "custom", "name": "c"}, {"type": "web_search"}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [CHOSEN]},
        "text": {"format": FORMAT},
    },
    "google": {
        "contents": [
            {"role": "user", "parts": [{"text": "q"}, {"inlineData": {"mimeType": "text/plain", "data": "aaaa"}}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "x"}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "x"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": SCHEMA}]}, {"googleSearch": {}}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {"topK": 4.0, "responseMimeType": "application/json", "responseSchema": SCHEMA},
    },
}
ODD = [
    None,
    0,
    -1,
    1.5,
    True,
    "",
    "x",
    "\ud83d",
    "ä",
    [],
    {},
    [1],
    [None],
    [{}],
    {"a": 1},
    TEXT,
    CHOSEN,
    FORMAT,
    10**30,
]


def find_paths(value, path=()):
    yield path
    for name, member in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from find_paths(member, (*path, name))


def change(body, path, odd):
    """Return a copy with another member in this place; ``del`` leaves it out."""
    changed = json.loads(json.dumps(body))
    place = changed
    for name in path[:-1]:
        place = place[name]
    if odd == "del":
        del place[path[-1]]
    else:
        place[path[-1]] = odd
    return changed


@pytest.mark.parametrize("dialect", BODIES)
def test_odd_members_are_asked_or_refused(dialect):
    talk, paths = Talk(with_reasoning=True), [path for path in find_paths(BODIES[dialect]) if path]
    google = Google(model="m")
    num_read = 0
    for path in paths:
        for odd in ("del", *random.Random(f"{path}").sample(ODD, 9)):
            text = json.dumps(change(BODIES[dialect], path, odd)).encode().replace(b"\\ud83d", "ä".encode())
            try:
                source = google.read(text, talk.memory) if dialect == "google" else talk.read(dialect, json.loads(text))
                check_media(source.messages, (), "rollout r-0")
                talk.rollout.inspect_prompt(source).hash_answers()
            except (AgentLayerError, RefusedError):
                continue
            num_read += 1

    assert num_read > len(paths)
