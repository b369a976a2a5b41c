r"""Values of any kind as JSON values that every record can hold, and tolerant reading of stored JSON.

What has a JSON form keeps it. What has none is converted by itself, so that the value around it stays structure:

    records of pydantic, dataclasses, attrs, msgspec  objects by field
    sets, deques, arrays of at most 65,536 numbers    lists
    NumPy's numbers, subclasses of str, int, float    plain ones
    integers beyond 64 bits, Decimal, NaN, infinity   text
    dates, times, UUIDs, enumerations                 text, or the value of the member
    bytes                                             text in base64
    lone surrogates inside a text                     their escape (``\ud83d``)
    keys of any kind                                  text
    all else, and what is nested too deeply           its ``repr``

A lone surrogate is half of a character. Programs make them where they cut a text by UTF-16 units, and JSON can spell
them (``"\ud83d"``), but UTF-8 cannot, and neither tokenizers nor stores read them.
"""

import base64
import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from contextlib import suppress
from dataclasses import fields as dataclass_fields, is_dataclass
from enum import Enum
from typing import Final, cast

import msgspec

_SURROGATE: Final = re.compile(rb"\\u[dD]")
"""What each escaped surrogate holds; other texts may hold it, too."""
_WHOLE: Final = re.compile(
    rb"(?:[^\\]++|\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(?!u[dD][89a-fA-F])[^\\]|\\))*+"
)
"""Text up to the first lone surrogate, or to its end."""
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F][\da-fA-F]{2})|.)", re.DOTALL
)
"""An escape, or the two of a pair; the group is a surrogate without its other half."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)
"""Errors of reading JSON: another form, not UTF-8, nested too deep, or a number out of range."""
MAX_DEPTH: Final = 128
"""Levels of lists and objects; as many as a request to the gateway may have by default."""
_MAX_ARRAY_ITEMS: Final = 65_536
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_SCALARS: Final = (bool, str, int, float, bytes, bytearray, memoryview, msgspec.Raw)


def json_value(value: object) -> object:
    """Return a copy of any value as a JSON value that JSON and msgpack both hold. Never raises."""
    if value is None or type(value) is bool or (type(value) is str and value.isascii()):
        return value
    try:
        return _convert(value, ())
    except RecursionError:  # the agent's own stack is deep already
        return safe_repr(value)


def json_text(value: object) -> bytes:
    """Encode a value of any kind as JSON text. Never raises."""
    try:
        body = _ENCODER.encode(value)
        if b"null" in body:  # which stands for NaN, too
            _STRICT.encode(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: too deep, or changed by another thread
        return _ENCODER.encode(json_value(value))
    return body


def read_json(text: bytes | str) -> object:
    """Read JSON of any writer. What other readers refuse in it is converted by itself; no JSON at all is text."""
    try:
        return msgspec.json.decode(text)
    except (*UNREADABLE, UnicodeEncodeError):
        pass
    try:
        return json_value(json.loads(text))
    except (ValueError, RecursionError):
        return text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")


def read_yaml(text: bytes) -> object:
    """Read YAML. Its parser has no bound of its own: a file that is nested too deep would end the process.

    Raises: msgspec.DecodeError: it is none, or nested more than ``MAX_DEPTH`` deep.
    """
    import yaml  # noqa: PLC0415  # no part of the base installation

    depth = 0
    with suppress(yaml.YAMLError):  # which decoding says, too
        for event in yaml.parse(text, Loader=yaml.SafeLoader):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise msgspec.DecodeError(f"YAML of more than {MAX_DEPTH} levels of lists and objects")
    return msgspec.yaml.decode(text)


def mend_surrogates(text: bytes) -> bytes:
    """Return JSON text with U+FFFD, the replacement character, in place of each escaped lone surrogate."""
    if b"\\" not in text or not _SURROGATE.search(text):  # one byte is found 30 times as fast as several
        return text
    whole = _WHOLE.match(text)
    end = whole.end() if whole else 0
    return text if end == len(text) else text[:end] + _ESCAPE.sub(_mend, text[end:])


def _mend(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape[1] else escape[0]


def safe_repr(value: object) -> str:
    """Return the ``repr`` of any value, errors included. Never raises: a failing ``repr`` must not fail an agent."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - code of the agent's, which may raise anything
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return _plain_text(text)


def _convert(value: object, around: tuple[int, ...]) -> object:
    """Return the JSON value; ``around`` are the ids of the values that it is in."""
    if value is None or isinstance(value, _SCALARS):
        return _convert_scalar(cast("object", value))
    if len(around) >= MAX_DEPTH or id(value) in around:
        return safe_repr(value)
    try:
        return _convert_parts(value, (*around, id(value)))
    except Exception:  # noqa: BLE001 - code of the agent's, which may raise anything; or another thread changes the value
        return safe_repr(value)


def _convert_parts(value: object, around: tuple[int, ...]) -> object:
    """Return the JSON value of a collection, or of an object."""
    if isinstance(value, Mapping):
        return _convert_items(cast("Mapping[object, object]", value).items(), around)
    if isinstance(value, list | tuple | deque):
        return [_convert(item, around) for item in list(cast("Iterable[object]", value))]
    if isinstance(value, AbstractSet):
        items = [_convert(item, around) for item in cast("AbstractSet[object]", value)]
        return sorted(items, key=json_text)  # else each process would have its own order
    return _convert_object(value, around)


def _convert_scalar(value: object) -> object:
    match value:
        case str():
            return _plain_text(value)
        case int() if not isinstance(value, bool):
            number = int(value)
            return number if _SMALLEST <= number <= _LARGEST else _digits(number)
        case float():
            infinite = {math.inf: "Infinity", -math.inf: "-Infinity"}
            return float(value) if math.isfinite(value) else infinite.get(value, "NaN")
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(cast("bytes", value)).decode()
        case _:
            return value


def _convert_object(value: object, around: tuple[int, ...]) -> object:
    """Return the JSON value of a record, an array, a member of an enumeration, a date or the like."""
    if isinstance(value, Enum):
        return _convert(value.value, around)
    if not isinstance(value, type):
        if callable(dump := getattr(value, "model_dump", None)):
            return _convert(_dump_model(value, dump), around)
        if names := _field_names(value):
            return _convert_items(((name, getattr(value, name)) for name in names if hasattr(value, name)), around)
    if callable(numbers := getattr(value, "tolist", None)):
        return _convert_array(value, cast("Callable[[], object]", numbers), around)
    return _convert(msgspec.to_builtins(value), around)


def _convert_items(items: Iterable[tuple[object, object]], around: tuple[int, ...]) -> dict[str, object]:
    made: dict[str, object] = {}
    for key, item in list(items):
        name = _plain_text(key) if isinstance(key, str) else _key_text(_convert(key, around))
        while name in made:  # keys that differ, such as 1 and "1"
            name += "'"
        made[name] = _convert(item, around)
    return made


def _key_text(key: object) -> str:
    return key if isinstance(key, str) else json_text(key).decode()


def _field_names(value: object) -> Sequence[str]:
    """Return the names of the fields of a dataclass, a struct or a class of attrs; none for anything else."""
    if is_dataclass(value):
        return [field.name for field in dataclass_fields(value)]
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    attributes = cast("Iterable[object]", getattr(type(value), "__attrs_attrs__", ()))
    return [str(getattr(attribute, "name", "")) for attribute in attributes]


def _dump_model(value: object, dump: Callable[..., object]) -> object:
    """Return a pydantic model as it writes itself; if it cannot, its fields as they are, else its ``repr``."""
    for mode in ("json", "python"):
        try:
            return dump(mode=mode)
        except Exception:  # noqa: BLE001 - code of the agent's, and values that pydantic has no form for
            continue
    return getattr(value, "__dict__", None) or safe_repr(value)


def _convert_array(value: object, numbers: Callable[[], object], around: tuple[int, ...]) -> object:
    """Return an array, tensor or number of NumPy and the like; a large one is described, as it describes itself."""
    shape = cast("tuple[int, ...]", getattr(value, "shape", ()))
    if math.prod(shape) > _MAX_ARRAY_ITEMS:
        return safe_repr(value)
    if getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M"):  # else nanoseconds become integers
        return _convert(cast("Callable[[type], object]", getattr(value, "astype"))(str), around)  # noqa: B009 - NumPy's
    return _convert(numbers(), around)


def _plain_text(text: str) -> str:
    """Return the text as a plain ``str`` that has a UTF-8 form."""
    plain = str.__str__(text)
    try:
        plain.encode()
    except UnicodeEncodeError:
        joined = plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return joined.encode("utf-8", "backslashreplace").decode()
    return plain


def _digits(number: int) -> str:
    try:
        return str(number)
    except ValueError:  # beyond the limit of Python's own conversion
        return hex(number)


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} has no JSON form")


_ENCODER = msgspec.json.Encoder(enc_hook=_refuse)
_STRICT = json.JSONEncoder(allow_nan=False)
