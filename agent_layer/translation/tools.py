"""Tools that a dialect names by type, as functions of chat completions.

Anthropic publishes schemas of tools that its clients run: bash, text editor, memory, computer. OpenAI's custom tools
take a text, and its namespaces are groups. All of these are functions here. What only the servers of another party run,
such as a web search, is left out, and named; the setting ``hosted_tools`` refuses it instead.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject, as_json_object, as_json_objects
from agent_layer.translation.memo import TextMemo
from agent_layer.translation.turns import function_tool, named_choice

HOSTED: Final = "tools."
"""What the names of tools begin with that are left out, or are no longer a group."""
_TEXT: Final[JsonObject] = {"type": "string"}
_INTEGER: Final[JsonObject] = {"type": "integer"}
_POINT: Final[JsonObject] = {"type": "array", "items": _INTEGER, "minItems": 2, "maxItems": 2}
_RANGE: Final = _POINT
_MAX_TYPE_LENGTH: Final = 48
_OWN_TYPES: Final = (None, "custom")


class Tool(msgspec.Struct):
    """A tool, as a client of either dialect declares it."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: JsonObject | None = None
    parameters: object = None
    strict: bool | None = None
    format: object = None
    tools: "list[Tool] | None" = None
    display_width_px: object = None
    display_height_px: object = None

    @property
    def kind(self) -> str:
        """Its type without the date of its version."""
        return (self.type or "function").rstrip("0123456789").rstrip("_")


class ToolName(msgspec.Struct, frozen=True):
    """How a client names the tool behind a function."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


class ToolSet(msgspec.Struct, frozen=True):
    """The tools of a request."""

    functions: list[JsonObject]
    dropped: list[str]
    """Names of those that no function stands for."""
    num_bytes: int = 0
    """About what it takes in memory, where it is remembered."""

    def restrict(self, choice: object) -> object:
        """Return a tool choice as far as the tools that it names are here; None: nothing of it is left."""
        if not self.dropped:
            return choice
        names = [as_json_object(one["function"]).get("name") for one in self.functions]
        wanted = as_json_object(choice)
        match wanted.get("type"):
            case "function":
                return choice if as_json_object(wanted.get("function")).get("name") in names else None
            case "allowed_tools":
                allowed = as_json_object(wanted.get("allowed_tools"))
                left = [one for one in as_json_objects(allowed.get("tools")) if self.restrict(one) is not None]
                return wanted | {"allowed_tools": allowed | {"tools": left}} if left else None
            case None:
                return choice if names else None
            case _:
                return None


def _object(required: str, **properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties, "required": required.split()}


def _make_choice(names: str) -> JsonObject:
    return {"type": "string", "enum": names.split()}


def _editor(commands: str, inserted: str) -> JsonObject:
    texts = {"file_text": _TEXT, "old_str": _TEXT, "new_str": _TEXT, inserted: _TEXT}
    return _object(
        "command path",
        command=_make_choice(commands),
        path=_TEXT,
        **texts,
        insert_line=_INTEGER,
        view_range=_RANGE,
    )


_OLD_EDITOR: Final = _editor("view create str_replace insert undo_edit", "new_str")
_EDITOR: Final = _editor("view create str_replace insert", "insert_text")
_FIRST_ACTIONS: Final = (
    "key type mouse_move left_click left_click_drag right_click middle_click double_click screenshot cursor_position"
)
_FIRST_COMPUTER: Final = _object("action", action=_make_choice(_FIRST_ACTIONS), coordinate=_POINT, text=_TEXT)
_ACTIONS: Final = f"{_FIRST_ACTIONS} left_mouse_down left_mouse_up triple_click scroll hold_key wait zoom"
_COMPUTER: Final = _object(
    "action",
    action=_make_choice(_ACTIONS),
    coordinate=_POINT,
    start_coordinate=_POINT,
    text=_TEXT,
    scroll_direction=_make_choice("up down left right"),
    scroll_amount=_INTEGER,
    duration={"type": "number"},
    region={"type": "array", "items": _INTEGER, "minItems": 4, "maxItems": 4},
)
_PUBLISHED: Final[Mapping[str, tuple[str, JsonObject]]] = MappingProxyType(
    {
        "bash": (
            "Run commands in a bash shell whose state stays between calls; restart begins a new one.",
            {"type": "object", "properties": {"command": _TEXT, "restart": {"type": "boolean"}}},
        ),
        "text_editor": ("View, create and edit text files.", _EDITOR),
        "text_editor_20241022": ("View, create and edit text files.", _OLD_EDITOR),
        "text_editor_20250124": ("View, create and edit text files.", _OLD_EDITOR),
        "memory": (
            "Keep notes in files below /memories, which stay between conversations.",
            _object(
                "command",
                command=_make_choice("view create str_replace insert delete rename"),
                **dict.fromkeys(
                    ("path", "file_text", "old_str", "new_str", "insert_text", "old_path", "new_path"), _TEXT
                ),
                insert_line=_INTEGER,
                view_range=_RANGE,
            ),
        ),
        "computer": ("See and use a screen, mouse and keyboard.", _COMPUTER),
        "computer_20241022": ("See and use a screen, mouse and keyboard.", _FIRST_COMPUTER),
    }
)
"""Anthropic's tools by type, or by type and version: what they do, and the schema of their input."""


def read_anthropic_tools(tools: Iterable[Tool]) -> ToolSet:
    """Return the tools of Anthropic's dialect as functions.

    Raises: BadInputError: a tool of the agent's own has no schema.
    """
    functions, dropped = list[JsonObject](), list[str]()
    for tool in tools:
        published = _PUBLISHED.get(tool.type or "") or _PUBLISHED.get(tool.kind)
        if tool.input_schema is not None:
            fields = {"description": tool.description, "parameters": tool.input_schema, "strict": tool.strict}
            functions.append(function_tool(tool.name, fields))
        elif published is not None:
            description, schema = published
            if tool.display_width_px and tool.display_height_px:
                description += f" The screen has {tool.display_width_px} by {tool.display_height_px} pixels."
            functions.append(function_tool(tool.name or tool.kind, {"description": description, "parameters": schema}))
        elif tool.type in _OWN_TYPES:
            raise BadInputError(
                f"tool {tool.name!r}: expected an input_schema, found none; describe its input as a JSON schema"
            )
        else:
            dropped.append(_name_dropped(tool))
    return ToolSet(functions, dropped)


def read_openai_tools(tools: Iterable[Tool], namespace: str | None = None) -> ToolSet:
    """Return the tools of OpenAI's responses as functions.

    Args:
        tools: of a request, or of a namespace.
        namespace: the group in which they are.

    Raises: BadInputError: a function has no name.
    """
    functions, dropped = list[JsonObject](), list[str]()
    for tool in tools:
        match tool:
            case Tool(type="function", name=str(name)):
                fields = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
                functions.append(function_tool(join_name(name, namespace), fields))
            case Tool(type="custom", name=str(name)):
                functions.append(function_tool(join_name(name, namespace), _custom_fields(tool)))
            case Tool(type="namespace", name=str(name)):
                group = read_openai_tools(tool.tools or (), name)
                functions += group.functions
                dropped += [_name_dropped(tool), *group.dropped]
            case Tool(type="function" | "custom"):
                raise BadInputError(f"tool of type {tool.type!r}: expected a name, found none; name it")
            case _:
                dropped.append(_name_dropped(tool))
    return ToolSet(functions, dropped)


def _memoise(read: Callable[[Iterable[Tool]], ToolSet]) -> TextMemo[ToolSet]:
    """Return a memo of a client's tools, by their JSON text."""

    def read_list(_: str, text: msgspec.Raw) -> ToolSet:
        found = read(msgspec.json.decode(text, type=list[Tool] | None) or ())
        return msgspec.structs.replace(found, num_bytes=_GROWTH * memoryview(text).nbytes)

    return TextMemo(read_list, measure=lambda found: found.num_bytes)


_GROWTH: Final = 8
"""About how often what is decoded is as large as its text; at worst three times that."""
ANTHROPIC_TOOLS: Final = _memoise(read_anthropic_tools)
OPENAI_TOOLS: Final = _memoise(read_openai_tools)


def choose_tool(name: object, namespace: object = None) -> JsonObject:
    """Return the choice of the function that stands for a tool of OpenAI's."""
    return named_choice(join_name(str(name), namespace if isinstance(namespace, str) else None))


def join_name(name: str, namespace: object) -> str:
    """Return the name of the function that stands for a tool in a namespace."""
    if not isinstance(namespace, str) or not namespace:
        return name
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


def read_tool_names(tools: msgspec.Raw) -> dict[str, ToolName]:
    """Return how a client names those of its tools that are no plain functions, by function.

    Args:
        tools: as a client of OpenAI's responses declares them.
    """
    if b'"custom"' not in bytes(tools) and b'"namespace"' not in bytes(tools):
        return {}
    declared = _TOOLS.decode(tools)
    grouped = [(tool, group.name) for group in declared if group.type == "namespace" for tool in group.tools or ()]
    return {
        join_name(tool.name, namespace): ToolName(tool.name, namespace, tool.type == "custom")
        for tool, namespace in [*((one, None) for one in declared if one.type == "custom"), *grouped]
        if tool.name
    }


_TOOLS: Final = msgspec.json.Decoder(list[Tool])


def _custom_fields(tool: Tool) -> JsonObject:
    """Return the function of a tool that takes a text."""
    grammar = as_json_object(tool.format)
    ruled = (
        f"The input follows this {grammar.get('syntax')} grammar:\n{grammar['definition']}"
        if "definition" in grammar
        else None
    )
    description = "\n\n".join(text for text in (tool.description, ruled) if text) or None
    return {"description": description, "parameters": _object("input", input=_TEXT)}


def write_custom_input(text: str) -> str:
    """Return the arguments of the function that stands for a tool which takes this text."""
    return json.dumps({"input": text}, ensure_ascii=False)


def read_custom_input(arguments: str) -> str:
    """Return the text that a tool takes, of the function's arguments; where these are something else, all of it."""
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = cast("JsonObject", value).get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


def _name_dropped(tool: Tool) -> str:
    return f"{HOSTED}{(tool.type or 'unnamed')[:_MAX_TYPE_LENGTH]}"
