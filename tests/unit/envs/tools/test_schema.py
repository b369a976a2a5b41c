"""Tools from functions: their schema, what they accept, and what they answer."""

import tomllib
from dataclasses import dataclass
from typing import Annotated, Literal, Optional

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.schema import find_misfit
from envs.env_context import EnvContext
from envs.registry import find_object
from envs.tools import ToolError, ToolResult, tool

from ....documents import ROOT


@dataclass
class Point:
    """A place."""

    x: int
    y: int = 0


class Box(msgspec.Struct):
    """A thing with a size."""

    name: str
    corners: list[Point] = []


@tool
async def draw(  # noqa: PLR0917  # one parameter of each kind
    context: EnvContext,
    at: Point,
    colour: Literal["red", "blue"],
    boxes: list[Box] | None = None,
    sizes: dict[str, float] = {},  # noqa: B006  # what users write
    width: Annotated[int, msgspec.Meta(ge=1)] = 1,
    label: Optional[str] = None,  # noqa: UP045  # what users write
) -> str:
    """Draw a point.

    It may have boxes
    around it.

    Args:
        context: the attempt.
        at: where
            it is.
        colour (str): of the point: red or blue.
        width: in pixels.

    Returns: what was drawn.
    """
    return f"{context} {type(at).__name__} {at.x},{at.y} {colour} {boxes} {sizes} {width} {label}"


def test_types_and_docstring_make_the_schema():
    assert draw.description == "Draw a point.\n\nIt may have boxes\naround it."
    properties = draw.parameters["properties"]
    assert list(properties) == ["at", "colour", "boxes", "sizes", "width", "label"]
    assert draw.parameters["required"] == ["at", "colour"]
    assert draw.parameters["additionalProperties"] is False
    assert properties["at"]["description"] == "where it is."
    assert "#/$defs/Point" in str(properties["at"])
    assert properties["colour"]["enum"] == ["blue", "red"]
    assert properties["colour"]["description"] == "of the point: red or blue."
    assert properties["width"] == {"description": "in pixels.", "type": "integer", "minimum": 1, "default": 1}
    assert properties["label"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert set(draw.parameters["$defs"]) == {"Point", "Box"}


async def test_arguments_become_what_the_function_declares():
    result = await draw("ctx", at={"x": 1}, colour="red", boxes=[{"name": "b", "corners": [{"x": 2}]}])

    assert result.text == "ctx Point 1,0 red [Box(name='b', corners=[Point(x=2, y=0)])] {} 1 None"


MISFITS = [
    ({"colour": "red"}, "expected at, found none"),
    ({"at": {"x": "1"}, "colour": "red"}, "expected at.x to be integer, found '1'"),
    ({"at": {"x": 1}, "colour": "green"}, "expected colour to be one of 'blue', 'red', found 'green'"),
    ({"at": {"x": 1}, "colour": "red", "width": 0}, "expected width to be at least 1, found 0"),
    ({"at": {"x": 1}, "colour": "red", "width": True}, "expected width to be integer, found True"),
    ({"at": {"x": 1}, "colour": "red", "size": 1}, "there is no size"),
    ({"at": {"x": 1}, "colour": "red", "boxes": [{"name": "b", "corners": [{}]}]}, "expected boxes[0].corners[0].x"),
    ({"at": {"x": 1}, "colour": "red", "sizes": {"a": "b"}}, "expected sizes.a to be number, found 'b'"),
    ([], "expected the arguments to be object, found []"),
]


@pytest.mark.parametrize(("arguments", "message"), MISFITS, ids=[message for _, message in MISFITS])
def test_the_first_misfit_names_its_place(arguments, message):
    assert find_misfit(draw.parameters, arguments).startswith(message)


@given(
    arguments=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["at", "x", "y", "colour", "name"]), inner),
    )
)
def test_no_value_breaks_the_comparison_and_what_fits_is_accepted(arguments):
    if find_misfit(draw.parameters, arguments) is None:
        msgspec.convert(arguments, draw._arguments)


CITY = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
JOINED = [
    ({"allOf": [CITY, {"required": ["age"]}]}, [{"name": "x", "age": 1}], [{"name": "x"}, {"name": 1, "age": 1}]),
    ({"properties": {"of": {"allOf": [{"$ref": "#/$defs/C"}]}}, "$defs": {"C": CITY}}, [{}], [{"of": {}}]),
    ({"prefixItems": [{"type": "string"}], "items": {"type": "null"}}, [["x"], ["x", None], []], [[1], ["x", 1]]),
    ({"$ref": "#/$defs/a~1b%5B", "$defs": {"a/b[": CITY}}, [{"name": "x"}], [{}]),
]


@pytest.mark.parametrize(("schema", "fitting", "others"), JOINED)
def test_all_parts_of_a_schema_hold(schema, fitting, others):
    assert [find_misfit(schema, value) for value in fitting] == [None] * len(fitting)
    assert None not in [find_misfit(schema, value) for value in others]


def test_a_schema_that_refers_to_itself_ends():
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    nested = {"type": "array", "items": {"$ref": "#"}}
    deep = value = []
    for _ in range(200):
        value.append([])
        value = value[0]

    assert find_misfit(schema, 1) is None
    assert find_misfit({"$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}, "$ref": "#/$defs/A"}, deep) is None
    assert find_misfit(nested, [[], [1]]) == "expected [1][0] to be array, found 1"


async def test_a_plain_function_is_a_tool_and_any_value_is_an_answer():
    @tool
    def count(items: list[int]) -> dict[str, int]:
        """Count."""
        return {"number": len(items)}

    assert await count(None, items=[1, 2]) == ToolResult(text='{"number":2}')


async def test_a_long_answer_loses_its_middle():
    @tool
    def flood() -> str:
        return "begin " + "word " * 100_000 + " end"

    text = (await flood(None)).text
    assert text.startswith("begin word")
    assert text.endswith("word  end")
    assert "characters cut out" in text
    assert len(text) < 50_000


@pytest.mark.parametrize(
    "error", [ToolError("no"), ValueError("no"), KeyError("no"), ZeroDivisionError("no"), FileNotFoundError("no")]
)
async def test_what_the_model_can_correct_is_answered(error):
    @tool
    def fail() -> str:
        raise error

    result = await fail(None)
    assert result.is_error
    assert "no" in result.text


async def test_other_errors_are_the_tools_own():
    @tool
    def broken(kind: str) -> str:
        raise {"pump": RuntimeError, "line": ConnectionResetError}[kind](kind)

    with pytest.raises(RuntimeError, match="pump"):
        await broken(None, kind="pump")
    with pytest.raises(ConnectionResetError, match="line"):
        await broken(None, kind="line")


def test_the_tools_that_have_a_name_exist():
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["agent_layer.tools"]

    assert len(named) == 7
    assert {name: find_object(place, "tool").name for name, place in named.items()} == {name: name for name in named}


def untyped(value): ...


def variadic(*values: int): ...


def strange(value: object, other: complex): ...


def unknown(value: "Nowhere"): ...  # noqa: F821  # the mistake


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (untyped, "has no type hint"),
        (variadic, "can be named"),
        (strange, "choose another type"),
        (unknown, "import it"),
        (lambda: 1, "choose another"),
    ],
)
def test_a_function_that_can_be_no_tool_is_refused_in_one_sentence(function, message):
    with pytest.raises(BadInputError, match=message):
        tool(function)
