"""``@tool``: any function as a tool, with JSON Schema from its type hints and descriptions from its docstring.

>>> @tool
... def add(a: int, b: int = 1) -> int:
...     '''Add two numbers.
...
...     Args:
...         a: first one.
...     '''
...     return a + b
>>> add.name, add.description, add.parameters["required"]
('add', 'Add two numbers.', ['a'])
>>> add.parameters["properties"]["a"]
{'description': 'first one.', 'type': 'integer'}
"""

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Annotated, Any, Final, ParamSpec, cast, get_type_hints

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject
from envs.env_context import EnvContext, ToolResult
from envs.tokens import cut_middle

P = ParamSpec("P")

CONTEXT: Final = "context"
"""Parameter that gets the ``EnvContext``, and that the model does not see."""
MAX_TOKENS: Final = 8_000
"""Tokens of a result; the middle of a longer one is cut out."""
_SECTION = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_OTHER_SECTION = re.compile(r"^(Returns|Raises|Yields|Examples?|Notes?):.*$")
_ARGUMENT = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolError(Exception):
    """A tool cannot do what the model asked, and the model should read why."""


_CORRECTABLE: Final = (
    *(ToolError, ValueError, LookupError, ArithmeticError),
    *(FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError),
)
"""What a function raises because of its arguments."""


class FunctionTool:
    """A function that the model may call. Contract: ``Tool``.

    A coroutine function runs on the event loop, a plain one in a thread. What it returns becomes text: a text as it is,
    other values as JSON. Errors that arguments cause are answered to the model: ``ToolError``, ``ValueError``,
    ``LookupError``, ``ArithmeticError``, and a missing or existing file. Any other error fails the attempt.
    """

    def __init__(self, function: Callable[..., object], name: str | None = None) -> None:
        self.name = name or getattr(function, "__name__", type(function).__name__)
        if not _NAME.fullmatch(self.name):
            raise BadInputError(
                f"tool {self.name!r}: expected a name of letters, digits, '_' and '-', at most 64; choose another"
            )
        self._function = function
        self._needs_context = CONTEXT in inspect.signature(function).parameters
        self.description, documented = _read_docstring(function)
        self._arguments = _arguments_type(self.name, function, documented)
        self.parameters = _make_schema(self.name, self._arguments)

    async def __call__(self, context: EnvContext, /, **arguments: object) -> ToolResult:
        """Call the function."""
        try:
            converted = msgspec.convert(arguments, self._arguments)
        except msgspec.ValidationError as error:
            return ToolResult(text=f"{self.name}: {error}; correct the arguments", is_error=True)
        values = {name: getattr(converted, name) for name in self._arguments.__struct_fields__}
        if self._needs_context:
            values[CONTEXT] = context
        try:
            returned = await self.run(**values)
        except _CORRECTABLE as error:
            name = "" if isinstance(error, ToolError) else f"{type(error).__name__}: "
            return ToolResult(text=f"{name}{error}", is_error=True)
        if isinstance(returned, ToolResult):
            return returned
        text = returned if isinstance(returned, str) else msgspec.json.encode(returned).decode()
        return ToolResult(text=cut_middle(text, MAX_TOKENS))

    async def read(self, context: EnvContext, /, **arguments: object) -> str:
        """Return the text of a call's result; for frameworks whose tools return text."""
        return (await self(context, **arguments)).text

    async def run(self, *args: Any, **arguments: Any) -> object:  # noqa: ANN401  # those of any function
        """Return what the function returns."""
        if inspect.iscoroutinefunction(self._function):
            return await self._function(*args, **arguments)
        return await asyncio.to_thread(self._function, *args, **arguments)


def tool(function: Callable[..., object]) -> FunctionTool:
    """Make a tool of a function.

    Every parameter needs a type hint: a JSON type, ``Literal``, ``Optional``, lists, dicts, dataclasses, msgspec
    structs. A parameter named ``context`` gets the ``EnvContext``. The docstring's first paragraph describes the tool,
    its section ``Args`` the parameters.

    Raises: BadInputError: a type hint is missing, or has no JSON Schema.
    """
    return FunctionTool(function)


def _arguments_type(name: str, function: Callable[..., object], documented: Mapping[str, str]) -> type[msgspec.Struct]:
    """Return a struct whose fields are the function's parameters."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadInputError(f"tool {name!r}: a type hint cannot be found, {error}; import it in the module") from error
    fields: list[tuple[str, object, object]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == CONTEXT:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadInputError(
                f"tool {name!r}: expected parameters that can be named, found {parameter}; write each with its type"
            )
        if parameter.name not in hints:
            raise BadInputError(f"tool {name!r}: parameter {parameter.name!r} has no type hint; add one")
        meaning = documented.get(parameter.name)
        kind = hints[parameter.name]
        if meaning:
            kind = Annotated[kind, msgspec.Meta(description=meaning)]
        fields.append((parameter.name, kind, _read_default(parameter)))
    try:
        return msgspec.defstruct(name, cast("Any", fields), kw_only=True, forbid_unknown_fields=True)
    except TypeError as error:
        raise BadInputError(f"tool {name!r}: {error}; choose types that JSON has") from error


def _read_default(parameter: inspect.Parameter) -> object:
    default: object = parameter.default
    if default is parameter.empty:
        return msgspec.NODEFAULT
    if isinstance(default, list | dict | set):
        copied = cast("object", default)
        return msgspec.field(default_factory=lambda: deepcopy(copied))
    return default


def _make_schema(name: str, arguments: type[msgspec.Struct]) -> JsonObject:
    """Return the JSON Schema of the struct itself; what its fields refer to stays in ``$defs``."""
    try:
        (schema,), definitions = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise BadInputError(f"tool {name!r}: a parameter has no JSON Schema, {error}; choose another type") from error
    own = str(schema["$ref"]).rpartition("/")[2]
    properties: JsonObject = {key: value for key, value in definitions.pop(own).items() if key != "title"}
    return {**properties, "$defs": definitions} if definitions else properties


def _read_docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Return the text before the sections, and the descriptions in the section Args."""
    lines = (inspect.getdoc(function) or "").splitlines()
    text: list[str] = []
    arguments: dict[str, list[str]] = {}
    in_arguments = is_over = False
    for line in lines:
        if _SECTION.match(line):
            in_arguments = True
        elif _OTHER_SECTION.match(line):
            in_arguments, is_over = False, True
        elif in_arguments and line[:1].isspace():
            found = _ARGUMENT.match(line.strip())
            is_entry = found is not None and len(line) - len(line.lstrip()) <= _INDENT
            if found and is_entry:
                arguments[found[1].lstrip("*")] = [found[2]]
            elif arguments:
                arguments[next(reversed(arguments))].append(line.strip())
        elif not in_arguments and not is_over:
            text.append(line)
    described = {name: " ".join(filter(None, words)) for name, words in arguments.items()}
    return "\n".join(text).strip(), described


_INDENT = 4
"""Indent of the entries of a section; deeper lines continue the entry before."""
