"""The row that a query shows of a trajectory."""

from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from agent_layer.store.segments.fields import FIELDS
from agent_layer.times import format_time


class TrajectoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the index knows of one attempt. None is "not known", for example before its first log is shipped."""

    trajectory_id: str
    rollout_id: str | None = None
    attempt: int | None = None
    task_id: str | None = None
    task_type: str | None = None
    run: str | None = None
    split: str | None = None
    """A ``Split``, or a word of a later version; so are ``status`` and ``cause``."""
    group_id: str | None = None
    status: str | None = None
    cause: str | None = None
    """What ended the attempt; None for a plain completion, and while it runs."""
    accepted: bool = False
    """This attempt, and no other, counts for its rollout."""
    reward: float | None = None
    num_steps: int = 0
    """Choices of all calls, including those that still run."""
    policy_min: int | None = None
    """Smallest version that sampled any token inside."""
    policy_max: int | None = None
    agents: list[str] = []
    """Names of the agents that made its calls, sorted."""
    tools: list[str] = []
    """Names of the tools that the model called or that answered, sorted."""
    started_at: str | None = None
    """RFC 3339 in UTC."""
    ended_at: str | None = None
    labels: dict[str, str] = {}
    """Those of its task, superseded or withdrawn by those given later."""
    worker: str | None = None
    input_hash: str | None = None
    """Content hash of its task's input."""
    env: str | None = None
    env_version: str | None = None
    findings: list[str] = []
    """Kinds of what was noticed of its steps and its end, sorted; ``show`` has the details."""
    engines: list[str] = []
    """Addresses of the engines that its calls went to, sorted; ``litellm`` for models of other parties."""


class GivenLabel(msgspec.Struct, frozen=True, array_like=True):
    """A label given later, as the index keeps it."""

    rank: str
    """When, and which, as text that sorts; the highest of a name counts."""
    value: str | None = None
    """None: withdrawn."""


def read_row(trajectory_id: str, fields: Mapping[bytes, bytes]) -> TrajectoryRow:
    """Convert the index's hash of a trajectory to a row.

    Of what a later version wrote in another form, a field is None (or empty), not the whole row an error.
    """
    try:
        return _convert(trajectory_id, fields)
    except (ValueError, msgspec.MsgspecError):
        return _convert(trajectory_id, {name: value for name, value in fields.items() if _is_readable(name, value)})


def _is_readable(name: bytes, value: bytes) -> bool:
    try:
        _convert("", {name: value})
    except (ValueError, msgspec.MsgspecError):
        return False
    return True


def _convert(trajectory_id: str, fields: Mapping[bytes, bytes]) -> TrajectoryRow:
    values: dict[str, object] = {name.decode(): value.decode() for name, value in fields.items()}
    values |= {name: read(fields[name.encode()]) for name, read in _READERS.items() if name in values}
    if b"given_labels" in fields:
        given = {name: label.value for name, label in read_given_labels(fields[b"given_labels"]).items()}
        labels = cast("dict[str, str]", values.get("labels", {})) | given
        values["labels"] = {name: value for name, value in labels.items() if value is not None}
    return msgspec.convert(values | {"trajectory_id": trajectory_id}, TrajectoryRow, strict=False)


def read_given_labels(stored: bytes | None) -> dict[str, GivenLabel]:
    """Return the labels given later, by name, from the field of the index's hash."""
    return msgspec.json.decode(stored, type=dict[str, GivenLabel]) if stored else {}


def _read_time(stored: bytes) -> str:
    return format_time(float(stored))


def _read_json(stored: bytes) -> object:
    return msgspec.json.decode(stored)


_READERS: dict[str, Callable[[bytes], object]] = {
    **{field.name: _read_time for field in FIELDS if field.kind == "time"},
    **{field.name: _read_json for field in FIELDS if field.kind == "json"},
}
"""Fields that a row shows otherwise than as the text that the index has."""
