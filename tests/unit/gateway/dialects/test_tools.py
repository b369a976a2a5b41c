"""Tools that dialects name by type reach the model as functions; what only others run is left out, and named."""

import json

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.responses import Responses
from agent_layer.gateway.dialects.turns import refuse_hosted

from ..talking import Talk
from .test_there_and_back import make_exchange, streamed

HI = {"role": "user", "content": "hi"}
CLIENT_RUN = [
    ("bash_20250124", "bash", ["command", "restart"]),
    ("bash_20241022", "bash", ["command", "restart"]),
    ("bash_20990101", "bash", ["command", "restart"]),
    ("text_editor_20250728", "str_replace_based_edit_tool", ["command", "path", "insert_text"]),
    ("text_editor_20250124", "str_replace_editor", ["command", "path", "new_str"]),
    ("memory_20250818", "memory", ["command", "old_path", "new_path"]),
    ("computer_20251124", "computer", ["action", "coordinate", "region"]),
    ("computer_20241022", "computer", ["action", "coordinate", "text"]),
]
HOSTED = {
    "messages": ["web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "mcp_toolset", "new_20991231"],
    "responses": [
        "web_search",
        "web_search_preview",
        "file_search",
        "code_interpreter",
        "mcp",
        "image_generation",
        "new",
    ],
}
FUNCTION = {
    "messages": {"name": "f", "input_schema": {"type": "object"}},
    "responses": {"type": "function", "name": "f", "parameters": {"type": "object"}},
}
CHOICES = {
    "messages": [
        None,
        {"type": "auto"},
        {"type": "any", "disable_parallel_tool_use": True},
        {"type": "tool", "name": "w"},
    ],
    "responses": [None, "auto", "required", {"type": "web_search"}, {"type": "function", "name": "w"}],
}


def read(dialect, **fields):
    """(request, what the engine is sent)."""
    body = {"messages": [HI], "max_tokens": 9} if dialect == "messages" else {"input": "hi"}
    request = Talk().read(dialect, {**body, **fields})
    return request, json.loads(request.for_engine("m", {}))


@pytest.mark.parametrize(("kind", "name", "properties"), CLIENT_RUN)
def test_anthropics_tools_that_clients_run_have_their_published_schemas(kind, name, properties):
    size = {"display_width_px": 640, "display_height_px": 480} if name == "computer" else {}

    request, sent = read("messages", tools=[{"type": kind, "name": name, **size}])

    (tool,) = sent["tools"]
    assert (tool["type"], tool["function"]["name"], request.not_applied) == ("function", name, [])
    assert set(properties) <= set(tool["function"]["parameters"]["properties"])
    assert ("640 by 480" in tool["function"]["description"]) == bool(size)


@pytest.mark.parametrize(
    ("dialect", "kind", "choice"),
    [(dialect, kind, choice) for dialect, kinds in HOSTED.items() for kind in kinds for choice in CHOICES[dialect]],
)
@pytest.mark.parametrize("has_own", [False, True])
def test_hosted_tools_are_left_out_and_named_or_refused(dialect, kind, choice, has_own):
    tools = [{"type": kind, "name": "w"}, *([FUNCTION[dialect]] if has_own else [])]

    request, sent = read(dialect, tools=tools, **({} if choice is None else {"tool_choice": choice}))

    assert [tool["function"]["name"] for tool in sent.get("tools", [])] == (["f"] if has_own else [])
    assert request.not_applied == [f"tools.{kind}"]
    names_hosted = isinstance(choice, dict) and ("w" in choice.values() or choice == {"type": "web_search"})
    assert ("tool_choice" in sent) == (has_own and choice is not None and not names_hosted)
    assert ("parallel_tool_calls" in sent) == (has_own and choice == {"type": "any", "disable_parallel_tool_use": True})
    with pytest.raises(BadInputError, match=f"found type {kind}"):
        refuse_hosted(request)


PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files."}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
GROUP = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}}, {**PATCH, "name": "note"}],
}


def test_custom_tools_and_namespaces_are_functions():
    request, sent = read(
        "responses", tools=[PATCH | {"format": GRAMMAR}, GROUP], tool_choice={"type": "custom", "name": "apply_patch"}
    )

    functions = {tool["function"]["name"]: tool["function"] for tool in sent["tools"]}
    assert list(functions) == ["apply_patch", "crm__find", "crm__note"]
    assert (
        functions["apply_patch"]["parameters"]["required"]
        == functions["crm__note"]["parameters"]["required"]
        == ["input"]
    )
    assert GRAMMAR["definition"] in functions["apply_patch"]["description"]
    assert sent["tool_choice"]["function"]["name"] == "apply_patch"
    assert request.not_applied == ["tools.namespace"]


ARGUMENTS = [
    '{"input": "*** Begin\\n"}',
    '{"input":"a"}',
    "{",
    "plain",
    '{"patch": "x"}',
    '{"input": 3}',
    "",
    '{"input": "", "x": 1}',
]


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize(
    ("name", "own"), [("apply_patch", {"name": "apply_patch"}), ("crm__note", {"name": "note", "namespace": "crm"})]
)
def test_a_call_of_a_custom_tool_has_its_own_shape_and_comes_back_exactly(name, own, arguments):
    talk, body = Talk(), {"input": [HI], "tools": [PATCH, GROUP]}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}],
    }

    _, reply, _ = talk.ask("responses", body, message)
    (call,) = reply["output"]
    assert (call["type"], {key: call[key] for key in own}) == ("custom_tool_call", own)
    parsed = json.loads(arguments) if arguments.startswith('{"') else {}
    assert call["input"] == (parsed["input"] if isinstance(parsed.get("input"), str) else arguments)
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"}
    read_now, _, findings = talk.ask("responses", {**body, "input": [HI, call, output]}, message)

    assert read_now[1:] == [message, {"role": "tool", "tool_call_id": "c1", "content": "done"}]
    assert findings == []


@pytest.mark.parametrize("size", [1, 3, 50])
@pytest.mark.parametrize("name", ["apply_patch", "crm__note", "crm__find"])
def test_a_streamed_call_is_the_whole_one(name, size):
    dialect = Responses()
    exchange = make_exchange(dialect, {"input": "hi", "stream": True, "tools": [PATCH, GROUP]})
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": '{"input": "a\\nb"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}

    events, _ = streamed(dialect, exchange, message, size)

    for event in events:
        TypeAdapter(ResponseStreamEvent).validate_python(event)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == Response.model_validate(events[-1]["response"]).model_dump(exclude_unset=True)["output"]
    texts = [event["delta"] for event in events if event["type"].endswith(".delta")]
    assert "".join(texts) == ('{"input": "a\\nb"}' if name == "crm__find" else "a\nb")
