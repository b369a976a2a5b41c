"""Messages between a supervisor of sandboxes and who uses them.

A connection carries calls by number; answers come in any order. The worker has a connection of its own. Every other
client first presents a capability, which decides what it can reach.
"""

from typing import Literal, NoReturn, TypeAlias

import msgspec

from agent_layer.errors import BadInputError, BoxExhaustedError, SandboxError, UnsupportedSandboxError
from agent_layer.schema.sandbox import EndOfBox, SandboxSpec, SandboxUsage
from envs.sandbox.pool import PoolOptions
from envs.sandbox.requests import CloseBox, Exec, Fork, ListFolder, Open, Pack, Ping, Read, Unpack, Write

MAX_HELLO_LENGTH = 1 << 10
"""Bytes of a client's first message."""
STDIN_WINDOW = 1 << 18
"""Bytes of standard input that a client may send to a live process before the process has taken them."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Parent of all messages; the class name is sent with each."""


class BoxFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a client knows of a box without asking it."""

    id: str
    kind: str
    spec: SandboxSpec
    owner: str


class TakenBox(msgspec.Struct, frozen=True, kw_only=True):
    """The box of an attempt, with what reaches it."""

    facts: BoxFacts
    address: str = ""
    """Socket and capability of the attempt's client; the capability reaches this box and its forks."""
    boot_seconds: float


class TakeFresh(_Message, frozen=True, kw_only=True):
    """Return a box that nothing has run in; for scorers."""

    spec: SandboxSpec | None = None
    """None: that of the attempt's own box."""
    seconds: float


BoxCall: TypeAlias = Exec | Read | Write | ListFolder | Pack | Unpack | Fork | Ping | CloseBox
ClientRequest: TypeAlias = BoxCall | Open | TakeFresh


class TakeBox(_Message, frozen=True, kw_only=True):
    """Make the box of an attempt, with its files."""

    owner: str
    """Lease token of the attempt."""
    task: str
    """Id of its task, for people."""
    spec: SandboxSpec
    files: dict[str, str] = {}
    """Texts of the files that it begins with, by path."""
    seconds: float
    """Longest wait for it."""
    lifetime_seconds: float | None = None
    """After which the box is lost; None: it ends with the attempt."""


class Collect(_Message, frozen=True, kw_only=True):
    """Freeze the box of an attempt, take files out of it, and end it."""

    owner: str
    paths: list[str] = []
    """Paths, or patterns of them."""
    max_bytes: int


class AllowScoring(_Message, frozen=True, kw_only=True):
    """Return the address at which a scorer of this attempt gets fresh boxes."""

    owner: str
    task: str
    spec: SandboxSpec | None = None
    """Default spec of boxes that are opened without one."""
    max_boxes: int = msgspec.field(name="most_boxes")


class EndScoring(_Message, frozen=True, kw_only=True):
    """End the boxes of an attempt's scorers, and what reaches them."""

    owner: str


class EndOwner(_Message, frozen=True, kw_only=True):
    """End everything that an attempt has."""

    owner: str


class GetUsage(_Message, frozen=True, kw_only=True):
    """Return what an attempt has used."""

    owner: str


class CommandTime(msgspec.Struct, frozen=True, kw_only=True):
    """How the commands of an attempt's agent spend its time."""

    seconds: float = 0.0
    """Time in which at least one ran, so far."""
    quiet_seconds: float | None = None
    """Since the last one ended; 0 while one runs, None: none has begun."""

    @property
    def is_running(self) -> bool:
        """Whether one runs now."""
        return self.quiet_seconds == 0


class GetCommandTime(_Message, frozen=True, kw_only=True):
    """Return how the commands of an attempt's agent spend its time."""

    owner: str


class Expect(_Message, frozen=True, kw_only=True):
    """Keep boxes of these specs ready."""

    wanted: list[tuple[SandboxSpec, int]]


class GetStats(_Message, frozen=True, kw_only=True):
    """Return the counts of the pool."""


class ListBoxes(_Message, frozen=True, kw_only=True):
    """Return the boxes that are taken."""


class ListOffers(_Message, frozen=True, kw_only=True):
    """Return the needs of tasks that this machine's kinds meet."""


OwnerRequest: TypeAlias = (
    TakeBox
    | Collect
    | AllowScoring
    | EndScoring
    | EndOwner
    | GetUsage
    | GetCommandTime
    | Expect
    | GetStats
    | ListBoxes
    | ListOffers
)


class Begin(_Message, frozen=True, kw_only=True):
    """First message of the worker."""

    options: PoolOptions


class Hello(_Message, frozen=True, kw_only=True):
    """First message of a client."""

    capability: str


class Welcome(_Message, frozen=True, kw_only=True):
    """Answer to ``Hello`` and ``Begin``."""

    box: BoxFacts | None = None
    """The attempt's box; None: the capability takes fresh ones."""


class Call(_Message, frozen=True, kw_only=True):
    """A client's call."""

    number: int
    request: ClientRequest


class OwnerCall(_Message, frozen=True, kw_only=True):
    """A call of the worker."""

    number: int
    request: OwnerRequest


class Cancel(_Message, frozen=True, kw_only=True):
    """The caller no longer waits; a command of that call is killed."""

    number: int


class Kill(_Message, frozen=True, kw_only=True):
    """Kill a live process; its call is answered when it has ended."""

    number: int


class StdinChunk(_Message, frozen=True, kw_only=True, tag="Feed"):
    """Standard input of a live process; empty: its end."""

    number: int
    chunk: bytes = b""


class StdinAck(_Message, frozen=True, kw_only=True, tag="Fed"):
    """The process has taken this much of its standard input; 0: it has started."""

    number: int
    num_bytes: int = 0


class FlowControl(_Message, frozen=True, kw_only=True, tag="Valve"):
    """Stop sending a live process's output, or go on."""

    number: int
    stream: Literal["stdout", "stderr"]
    is_open: bool


class Output(_Message, frozen=True, kw_only=True):
    """Output of a live process; empty: its end."""

    number: int
    stream: Literal["stdout", "stderr"]
    chunk: bytes = b""


class Answer(_Message, frozen=True, kw_only=True):
    """What a call returned."""

    number: int
    value: msgspec.Raw


class Failure(_Message, frozen=True, kw_only=True):
    """What a call raised."""

    number: int
    kind: Literal["bad_input", "unsupported", "sandbox", "exhausted", "os", "self_inflicted", "value"]
    message: str
    errno: int | None = None
    path: str | None = None


class BoxLost(_Message, frozen=True, kw_only=True):
    """The box of an attempt ended before the attempt did."""

    owner: str
    end: EndOfBox


ToSupervisor: TypeAlias = Hello | Call | Cancel | Kill | StdinChunk | FlowControl
FromSupervisor: TypeAlias = Welcome | Answer | Failure | Output | StdinAck
OwnerToSupervisor: TypeAlias = Begin | OwnerCall | Cancel
SupervisorToOwner: TypeAlias = Welcome | Answer | Failure | BoxLost


class CollectedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken out of a frozen box."""

    archive: bytes | None = None
    """None: nothing was asked for."""
    missing: list[str] = []
    """Paths that the agent did not leave."""
    too_large: bool = False
    """They were larger than allowed, so that there is no archive."""
    end: EndOfBox | None = None
    """Why the box had ended by its own commands, so that nothing could be taken; None: it had not."""
    usage: SandboxUsage | None = None
    """None: there was no box."""


_ERRORS = {"bad_input": BadInputError, "unsupported": UnsupportedSandboxError, "sandbox": SandboxError}


def make_failure(number: int, error: Exception) -> Failure:
    """Return an error as a message."""
    match error:
        case UnsupportedSandboxError():
            return Failure(number=number, kind="unsupported", message=str(error))
        case BadInputError():
            return Failure(number=number, kind="bad_input", message=str(error))
        case OSError():
            path = error.filename if isinstance(error.filename, str) else None
            is_own = isinstance(error.__cause__, BoxExhaustedError)
            kind = "exhausted" if isinstance(error, BoxExhaustedError) else "self_inflicted" if is_own else "os"
            return Failure(number=number, kind=kind, message=error.strerror or "", errno=error.errno, path=path)
        case ValueError():
            return Failure(number=number, kind="value", message=str(error))
        case _:
            return Failure(number=number, kind="sandbox", message=str(error) or type(error).__name__)


def raise_failure(failure: Failure) -> NoReturn:
    """Raise the error that a message describes."""
    match failure.kind:
        case "os":
            raise OSError(failure.errno, failure.message, failure.path)
        case "self_inflicted":
            cause = BoxExhaustedError(failure.errno, "the commands of the sandbox, or what is judged, did that")
            raise OSError(failure.errno, failure.message, failure.path) from cause
        case "exhausted":
            raise BoxExhaustedError(failure.errno, failure.message, failure.path)
        case "value":
            raise ValueError(failure.message)
        case kind:
            raise _ERRORS[kind](failure.message)
