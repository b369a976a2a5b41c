"""Messages between a worker and its host processes."""

from typing import TypeAlias

import msgspec

from agent_layer.schema import Cause, Reward, RolloutStatus, Task, TraceContext
from agent_layer.schema.sandbox import SandboxSpec
from envs.sandbox import BoxFacts

MAX_PACKET_LENGTH = 1 << 17
"""Bytes of one message to or from a fork server; each is a packet, so that a socket can be passed along."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Parent of all messages; the class name is sent with each."""


class Begin(_Message, frozen=True, kw_only=True):
    """First message of the worker."""

    target: str = ""
    """Name of the agent; empty in a process of scorers."""
    path: list[str]
    """Module search path."""
    settings: dict[str, object]


class Ready(_Message, frozen=True, kw_only=True):
    """Answer to ``Begin``."""

    error: str | None = None
    """What is wrong with the target; None: it is loaded."""
    env: str | None = None
    """Name of the environment that the target is; None: it is none."""
    env_version: str | None = None
    is_resumable: bool = False
    """Whether the target can pause, and resume from a checkpoint."""
    sandbox: SandboxSpec | None = None
    """What the target declares for tasks that ask for no sandbox; None: nothing."""
    artifacts: list[str] = []
    """What the target declares for tasks that name no artifacts."""


class StartedBox(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt's sandbox, with what reaches it."""

    facts: BoxFacts
    address: str


class Start(_Message, frozen=True, kw_only=True):
    """Run the agent once."""

    token: str
    task: Task
    """Without its grading, always."""
    trajectory_id: str
    rollout_id: str
    attempt: int
    run: str
    base_url: str | None
    api_key: str | None
    model: str | None
    trace: TraceContext
    is_resumable: bool = False
    """Whether states that the agent saves are stored."""
    kept: bytes | None = None
    """State from which the attempt resumes; None: it begins."""
    sandbox: StartedBox | None = None
    """The attempt's sandbox; None: it has none."""


class Stop(_Message, frozen=True, kw_only=True):
    """End that run early."""

    token: str
    why: str


class Stopping(_Message, frozen=True, kw_only=True):
    """Answer to ``Stop``; a process that does not send it hangs."""

    token: str


class Started(_Message, frozen=True, kw_only=True):
    """The agent or scorer is prepared and starts."""

    token: str


class Active(_Message, frozen=True, kw_only=True):
    """These runs recorded something since the last such message."""

    tokens: list[str]


class Ended(_Message, frozen=True, kw_only=True):
    """How the run ended."""

    token: str
    status: RolloutStatus
    cause: Cause | None = None
    error: str | None = None
    traceback: str | None = None
    """Where the agent raised the error."""
    is_self_inflicted: bool = False
    result: object = None
    """What the agent returned, a JSON value."""
    seconds: float
    logs: list[str] = []
    """Names of that process's logs with records of the attempt."""


class Save(_Message, frozen=True, kw_only=True):
    """Store a state of that run."""

    token: str
    number: int
    """Number of this save within the run."""
    state: bytes


class Saved(_Message, frozen=True, kw_only=True):
    """Answer to ``Save``."""

    token: str
    number: int
    is_pausing: bool = False
    """Whether the run pauses here."""
    error: str | None = None
    """Why the attempt no longer belongs to this worker; None: it does."""


class Check(_Message, frozen=True, kw_only=True):
    """Load the scorer of this name."""

    token: str
    scorer: str


class Checked(_Message, frozen=True, kw_only=True):
    """Answer to ``Check``."""

    token: str
    error: str | None = None
    """Why it cannot be loaded; None: it is loaded."""
    takes_boxes: bool = False
    """Whether it may ask for sandboxes: it is a ``Scorer``, no function."""


class Judge(_Message, frozen=True, kw_only=True):
    """Score a stored trajectory."""

    token: str
    scorer: str
    task: Task
    """Task with its grading."""
    trajectory_id: str
    result: object
    seconds: float
    """Longest time for the scorer."""
    sandbox: str | None = None
    """Address and capability for fresh sandboxes; None: the worker has none."""
    artifacts: bytes | None = None
    """Archive of the files that the agent left; None: none were declared."""


class ScoredAttempt(_Message, frozen=True, kw_only=True, tag="Judged"):
    """Rewards of the scorer."""

    token: str
    rewards: list[Reward] = []
    error: str | None = None
    """Why the trajectory could not be read; None: it could."""


class Fork(_Message, frozen=True, kw_only=True):
    """Fork a host for one attempt; the socket for its channel is passed along."""

    token: str


class Kill(_Message, frozen=True, kw_only=True):
    """Kill that host and its descendants."""

    token: str


class Died(_Message, frozen=True, kw_only=True):
    """That host and its descendants have ended."""

    token: str
    status: int = 0
    """Status as ``os.waitpid`` gives it."""
    error: str = ""
    """Why it never started; empty: it did."""


Request: TypeAlias = Start | Check | Judge
Reply: TypeAlias = Ended | Checked | ScoredAttempt
ToHost: TypeAlias = Begin | Request | Stop | Saved
FromHost: TypeAlias = Ready | Reply | Stopping | Started | Active | Save
