"""Adapters: how a check gets an address of the endpoint under test, and how what it recorded is read back.

An adapter is any object with ``open_door`` and ``read_records``. ``--records module:function`` names a function that
takes (url, key) and returns one, or, simpler, a function without parameters that returns the records.
"""

import importlib
import inspect
import json
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol, cast, runtime_checkable

import msgspec

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.schema import JsonObject

_NUM_THREADS = 32
"""Rollouts that end at the same time."""


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a model as an endpoint recorded it; None: the endpoint does not record this member.

    A file of records has one of these on each line, as JSON. Other members are ignored.
    """

    messages: list[JsonObject] | None = None
    """The prompt as chat messages."""
    message: JsonObject | None = None
    """The answer as a chat message: ``content``, ``tool_calls``."""
    prompt_token_ids: list[int] | None = None
    response_token_ids: list[int] | None = None
    """[num_response_tokens]."""
    logprobs: list[float] | None = None
    """[num_response_tokens], of the sampled ids."""
    finish_reason: str | None = None
    status: str = "ok"
    """``ok``: a whole answer, which may be trained; any other word: it is none."""


class Door(NamedTuple):
    """Where a check sends its requests."""

    url: str
    """Up to and with ``/v1``."""
    key: str


@runtime_checkable
class CaptureAdapter(Protocol):
    """Access to an endpoint and to its records."""

    def open_door(self, check: str) -> Door:
        """Return the address for one check; endpoints with rollouts open one for each, others return the same."""
        ...

    def read_records(self) -> Iterable[RecordedAnswer] | None:
        """Return what was recorded, once, after all checks have asked. None: records cannot be read."""
        ...


class PlainAdapter:
    """One address for all checks.

    Args:
        url: up to and with ``/v1``.
        key: sent with each request.
        read: returns records as JSON objects; None: there are none to read.
    """

    def __init__(self, url: str, key: str, read: Callable[[], Iterable[object]] | None = None) -> None:
        self._door = Door(url.rstrip("/"), key)
        self._read = read

    def open_door(self, check: str) -> Door:
        """See CaptureAdapter."""
        del check
        return self._door

    def read_records(self) -> Iterable[RecordedAnswer] | None:
        """See CaptureAdapter."""
        return None if self._read is None else map(as_record, self._read())


class RolloutAdapter:
    """A gateway of ours, of any age: one rollout for each check.

    Args:
        url: of the gateway, without ``/v1``.
        key: the operator's.
        read: returns the records of an ended trajectory, by its id.
    """

    def __init__(self, url: str, key: str, read: Callable[[str], Iterable[RecordedAnswer]]) -> None:
        self._url, self._key, self._read = url.rstrip("/"), key, read
        self._opened: list[JsonObject] = []

    def open_door(self, check: str) -> Door:
        """See CaptureAdapter."""
        opened = self._post("/rollouts", {"task_id": check, "group_id": check})
        self._opened.append(opened)
        return Door(str(opened["base_url"]), str(opened["api_key"]))

    def read_records(self) -> Iterator[RecordedAnswer]:
        """End all rollouts, and read them."""
        with ThreadPoolExecutor(_NUM_THREADS) as pool:
            list(pool.map(self._end, self._opened))
        for opened in self._opened:
            yield from self._read(str(opened["trajectory_id"]))

    def _end(self, opened: JsonObject) -> None:
        self._post(f"/rollouts/{opened['rollout_id']}/end", {})

    def _post(self, path: str, body: JsonObject) -> JsonObject:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=60) as reply:
            return msgspec.json.decode(reply.read(), type=JsonObject)


def as_record(value: object) -> RecordedAnswer:
    """Read one record.

    Raises: CorruptRecordError: it does not have the form.
    """
    if isinstance(value, RecordedAnswer):
        return value
    try:
        return msgspec.convert(value, RecordedAnswer)
    except msgspec.ValidationError as error:
        raise CorruptRecordError(
            f"record {value!r:.200}: {error}; docs/conformance.md shows the form of a record"
        ) from error


def load_adapter(place: str | None, url: str, key: str) -> CaptureAdapter:
    """Return the adapter that ``--records`` names.

    Args:
        place: ``module:function``, or a file of JSON lines; None: records cannot be read.
        url: of the endpoint.
        key: of the endpoint.

    Raises: BadInputError: there is no such function.
    """
    if place is None:
        return PlainAdapter(url, key)
    module, colon, name = place.rpartition(":")
    if place.endswith((".jsonl", ".json")) or not colon:
        return PlainAdapter(url, key, lambda: _read_lines(Path(place)))
    try:
        function = cast("Callable[..., object]", getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError) as error:
        raise BadInputError(
            f"--records {place}: {error}; expected module:function, importable from here, or a file of JSON lines"
        ) from error
    if not inspect.signature(function).parameters:
        return PlainAdapter(url, key, cast("Callable[[], Iterable[object]]", function))
    adapter = function(url, key)
    if not isinstance(adapter, CaptureAdapter):
        raise BadInputError(
            f"--records {place}: expected an object with open_door and read_records, found {type(adapter).__name__};"
            " docs/conformance.md shows both"
        )
    return adapter


def _read_lines(path: Path) -> Iterator[object]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield json.loads(line)  # unlike msgspec, it reads half a surrogate pair, which others write
            except (ValueError, RecursionError) as error:
                raise CorruptRecordError(
                    f"{path}:{number}: {error}; each line is one record, see docs/conformance.md"
                ) from error
