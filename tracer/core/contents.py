"""Contents: values of any kind as JSON text, stored once per trajectory; and the recording of tool uses.

A tool use is recorded before its output is returned to the agent.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import msgspec

from agent_layer.schema import Content, LogRecord, Observation, content_hash, refer_to
from tracer.core.scope import Scope

if TYPE_CHECKING:
    from tracer.core.rollout_handle import Rollout

Identity: TypeAlias = tuple[object, ...]

_LONG_TEXT = 1024
"""Characters. A longer message is recognised by identity, so that it is hashed once only."""

_INLINE_BYTES = 128
"""A longer value becomes a content of its own, to which later states refer."""


class ContentWriter:
    """Collects the contents that a record refers to, and writes them before that record."""

    def __init__(self, rollout: "Rollout") -> None:
        self.rollout = rollout
        self._fresh: dict[str, Content] = {}
        self._known: dict[Identity, tuple[str, object]] = {}

    def add(self, value: object) -> str:
        """Return the content hash of a value of any kind."""
        strings = _long_strings(value)
        if strings is None:
            return self.add_text(json_text(value))
        return self.add_once(tuple(map(id, strings)), strings, lambda: value)

    def add_once(self, identity: Identity, alive: object, read: Callable[[], object]) -> str:
        """Return the content hash recorded under this identity, else that of the value that ``read`` returns.

        Args:
            identity: the same only for the same content; ``id()`` of objects that cannot change will do.
            alive: keeps these objects alive, so that no other object gets their ids.
            read: returns the value.
        """
        known = self.rollout.messages.get(identity) or self._known.get(identity)
        if known is None:
            known = self._known[identity] = self.add_text(json_text(read())), alive
        return known[0]

    def add_text(self, body: bytes) -> str:
        """Return the content hash of JSON text."""
        key = content_hash(body)
        if key not in self.rollout.stored and key not in self._fresh:
            self._fresh[key] = Content(trajectory_id=self.rollout.trajectory_id, hash=key, body=body)
        return key

    def place(self, value: object) -> object:
        """Return the value as part of a larger content: inline when short, else as a reference."""
        body = json_text(value)
        return msgspec.Raw(body) if len(body) <= _INLINE_BYTES else refer_to(self.add_text(body))

    def place_items(self, values: list[object]) -> object:
        """Return a list as part of a larger content. Long items become contents, so that a list grows cheaply."""
        body = json_text(values)
        if len(body) <= _INLINE_BYTES * len(values):
            return self.place(msgspec.Raw(body))
        return self.place([self.place(value) for value in values])

    def write(self, *records: LogRecord) -> None:
        """Append the collected contents and the records that refer to them, in one write."""
        self.rollout.append(*self._fresh.values(), *records)
        self.rollout.stored.update(self._fresh)
        self.rollout.messages.update(self._known)
        self._fresh.clear()


def json_text(value: object) -> bytes:
    """Encode a value of any kind as JSON; values without a JSON form are replaced by their ``repr``."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: too deep, or changed by another thread
        return _ENCODER.encode(safe_repr(value))


def json_value(value: object) -> object:
    """Return a copy of any value as JSON that a record can store."""
    if value is None or type(value) in (bool, float) or (type(value) is str and value.isascii()):
        return value
    found = msgspec.json.decode(json_text(value))
    try:
        msgspec.msgpack.encode(found)
    except OverflowError:  # an integer of more than 64 bits
        return safe_repr(value)
    return found


def safe_repr(value: object) -> str:
    """Return the ``repr`` of any value, errors included. Never raises: a failing ``repr`` must not fail an agent."""
    try:
        said = repr(value)
    except Exception as error:  # noqa: BLE001 - code of the agent's, which may raise anything
        said = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return said.encode("utf-8", "backslashreplace").decode()


def _long_strings(value: object) -> list[str] | None:
    """Return the field names and texts of a long message; None for anything else."""
    if type(value) is not dict:
        return None
    fields = cast("dict[object, object]", value)
    text = fields.get("content")
    if type(text) is not str or len(text) <= _LONG_TEXT:
        return None
    strings = [*fields, *fields.values()]
    return cast("list[str]", strings) if all(type(one) is str for one in strings) else None


def _stand_in(value: object) -> object:
    """Return a JSON form of an object that msgspec does not know: its fields, else its ``repr``."""
    try:
        dump = getattr(value, "model_dump", None)
        return dump(mode="json") if callable(dump) else safe_repr(value)
    except Exception:  # noqa: BLE001 - code of the agent's, which may raise anything
        return safe_repr(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_stand_in)


_LONGEST_OUTPUT = 1 << 20
"""Characters of the text, or bytes of the JSON, above which an output is cut."""


class ToolUse(msgspec.Struct, kw_only=True, eq=False):
    """One use of a tool. A framework and ``@tracer.tool`` may both see it; the inner layer records it, once."""

    scope: Scope
    name: str
    arguments: object = None
    call_id: str | None = None
    """Model call that requested the tool; None: the latest call of the same lineage."""
    use_id: str = ""
    started: float = 0.0
    is_taken: bool = False
    is_open: bool = True

    def __post_init__(self) -> None:
        clock = self.scope.rollout.clock
        self.use_id, self.started = clock.new_id(), clock.ticks()
        self.call_id = self.call_id or self.scope.lineage.latest_call
        self.scope.rollout.unfinished[self.use_id] = self.abandon

    def record(self, output: object, status: Literal["ok", "error"] | None = "ok") -> None:
        """Record the output of the tool."""
        if not self._close() or self.is_taken:
            return
        rollout, (kept, is_cut) = self.scope.rollout, _cut(output)
        rollout.append(
            Observation(
                trajectory_id=rollout.trajectory_id,
                observation_id=self.use_id,
                run=rollout.run,
                name=self.name,
                at=rollout.clock.now(),
                call_id=self.call_id,
                agent=self.scope.agent,
                arguments=json_value(self.arguments),
                output=kept,
                status=status,
                duration_seconds=rollout.clock.ticks() - self.started,
                truncated=is_cut,
            )
        )

    def record_error(self, error: BaseException) -> None:
        """Record that the tool failed. A tool that waits for a person has no output yet: it will run again."""
        if is_pause(error):
            self._close()
        else:
            self.record(safe_repr(error), status="error")

    def abandon(self) -> None:
        """Record that the agent no longer waits for the tool."""
        self.record(None, status=None)

    def _close(self) -> bool:
        """Close the use. Returns whether it was open."""
        was_open, self.is_open = self.is_open, False
        self.scope.rollout.unfinished.pop(self.use_id, None)
        return was_open


def is_pause(error: BaseException) -> bool:
    """Whether LangGraph raises this error to pause a node, or to hand over to another node."""
    return any(kind.__name__ == "GraphBubbleUp" for kind in type(error).__mro__)


def _cut(output: object) -> tuple[object, bool]:
    """Return (JSON value, False), or (beginning of the text, True) when the output is too long."""
    if isinstance(output, str):
        return json_value(output[:_LONGEST_OUTPUT]), len(output) > _LONGEST_OUTPUT
    text = json_text(output)
    is_long = len(text) > _LONGEST_OUTPUT
    return text[:_LONGEST_OUTPUT].decode("utf-8", "replace") if is_long else json_value(output), is_long


def adopt_tool_use(scope: Scope, name: str, arguments: object) -> ToolUse:
    """Return a tool use; it answers the model call of the framework's use when that is of the same tool."""
    outer = scope.tool
    if outer is None or not outer.is_open or outer.is_taken or outer.name != name:
        return ToolUse(scope=scope, name=name, arguments=arguments)
    outer.is_taken = True
    return ToolUse(scope=scope, name=name, arguments=arguments, call_id=outer.call_id)
