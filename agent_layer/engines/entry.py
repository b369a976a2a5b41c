"""Entry of one engine in the registry: a record, and the fields of a Redis hash."""

from typing import Literal, TypeAlias

import msgspec

from agent_layer.engines.kinds import KindName, LogprobsMode

EngineState: TypeAlias = Literal["serving", "draining", "loading"]

IDLE, QUIET = "idle:", "quiet:"
"""Fields of gateways in an engine's entry: the epoch and the drain for which they have no call in flight."""
NUMBERS = ("epoch", "drains", "revision")
"""Fields that only grow; a registration takes over those of its predecessor."""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One registered engine."""

    url: str
    """Address without /v1."""
    run: str
    version: int
    """Policy version that it serves, or served last."""
    location: str
    """Directory or model name of those weights."""
    model: str
    """Name of the served model."""
    logprobs_mode: LogprobsMode
    state: EngineState
    epoch: int
    """Number of the last move to draining, or of the last registration."""
    kind: KindName = "vllm"
    is_drained: bool = False
    """An operator took it out of rotation; trainers still load weights into it."""
    is_joined: bool = False
    """An operator added it at run time: gateways use it although their settings do not name it."""
    started_from: str | None = None
    """Location of the weights that it has after a start; None: not known."""
    tokenizer_hash: str | None = None
    template_hash: str | None = None
    """Hash of the template among the files at ``location``; None: they are not readable."""
    is_pushed: bool = False
    """Its owner pushes weights into it and announces their version (``EngineRegistry.hold``). Nothing else loads it."""
    is_assumed: bool = False
    """Its weights are its own word: it may have been given others since it started, which it does not tell."""
    drains: int = 0
    """Number of the last time that an operator drained it, or of the last registration."""
    is_unchanged: bool = False
    """While its calls are held: it served before, so the hold can be cancelled as long as nothing is pushed."""
    held_since: float | None = None
    """When the switch in progress began, in seconds since the epoch; None: none is."""
    num_switches: int = 0
    stall_seconds: float | None = None
    """Seconds that the last switch held calls, from draining to serving; None: there was none."""
    stalled_seconds: float = 0.0
    """The same, of all switches together."""
    revision: int = 0
    """Number of the last change of this entry; the highest is the newest."""


def list_items(engine: Engine) -> list[str]:
    """Return names and values of the fields, alternating; without address and numbers."""
    fields = msgspec.structs.asdict(engine)
    kept = {name: value for name, value in fields.items() if name not in ("url", *NUMBERS)}
    return [part for name, value in kept.items() for part in (name, to_text(value))]


def to_text(value: object) -> str:
    """Return a value as text for Redis; empty for what is not known."""
    return "" if value is None else str(int(value) if isinstance(value, bool) else value)


def read_entry(url: str, fields: dict[bytes, bytes]) -> Engine | None:
    """Return the entry that the fields of its hash say, reports of gateways aside; None: it is not registered."""
    if b"state" not in fields:
        return None
    reports = (IDLE.encode(), QUIET.encode())
    values = {name.decode(): value.decode() for name, value in fields.items() if value and not name.startswith(reports)}
    return msgspec.convert({**values, "url": url}, Engine, strict=False)
