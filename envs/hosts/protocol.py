"""This file holds what a worker and the processes of users' code say to each other."""

from typing import TypeAlias

import msgspec

from agent_layer.schema import Cause, Reward, RolloutStatus, Task
from agent_layer.schema.wire import TraceContext

LONGEST_PACKET = 1 << 17
"""Bytes of what is said to and by a zygote; each message is a packet of its own, so that a socket can come along."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Parent of all messages; the class name is sent with each."""


class Begin(_Message, frozen=True, kw_only=True):
    """Said first."""

    target: str = ""
    """Name of the agent; empty in a process of scorers."""
    path: list[str]
    """Where modules are looked for."""
    settings: dict[str, object]


class Ready(_Message, frozen=True, kw_only=True):
    """Answer to ``Begin``."""

    error: str | None = None
    """What is wrong with the target; None: it is loaded."""
    env: str | None = None
    """Name of the environment that the target is; None: it is none."""
    env_version: str | None = None
    is_resumable: bool = False
    """Whether the target can be told to pause, and goes on from a checkpoint."""


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
    """What the agent saves is to be kept."""
    kept: bytes | None = None
    """The state from which the attempt goes on; None: from the beginning."""


class Stop(_Message, frozen=True, kw_only=True):
    """End that run early."""

    token: str
    why: str


class Stopping(_Message, frozen=True, kw_only=True):
    """Answer to ``Stop``: it was heard. A process that does not even say this is stuck."""

    token: str


class Started(_Message, frozen=True, kw_only=True):
    """The agent, or the scorer, is prepared and begins."""

    token: str


class Active(_Message, frozen=True, kw_only=True):
    """Of these runs something was recorded since this was last said."""

    tokens: list[str]


class Ended(_Message, frozen=True, kw_only=True):
    """How the run ended."""

    token: str
    status: RolloutStatus
    cause: Cause | None = None
    error: str | None = None
    result: object = None
    """What the agent returned, a JSON value."""
    seconds: float
    logs: list[str] = []
    """Of the recorder in that process, that hold records of the attempt."""


class Save(_Message, frozen=True, kw_only=True):
    """Keep a state of that run."""

    token: str
    number: int
    """Of this save among those of the run."""
    state: bytes


class Saved(_Message, frozen=True, kw_only=True):
    """Answer to ``Save``."""

    token: str
    number: int
    is_pausing: bool = False
    """The run is to pause here."""
    error: str | None = None
    """Why the attempt is not this worker's any more; None: it is."""


class Check(_Message, frozen=True, kw_only=True):
    """Find the scorer of this name."""

    token: str
    scorer: str


class Checked(_Message, frozen=True, kw_only=True):
    """Answer to ``Check``."""

    token: str
    error: str | None = None
    """None: there is one."""


class Judge(_Message, frozen=True, kw_only=True):
    """Let a scorer judge a stored trajectory."""

    token: str
    scorer: str
    task: Task
    """With its grading."""
    trajectory_id: str
    result: object
    seconds: float
    """Longest time that the scorer may take."""


class Judged(_Message, frozen=True, kw_only=True):
    """What the scorer gave."""

    token: str
    rewards: list[Reward] = []
    error: str | None = None
    """Why the trajectory could not be read; None: it could."""


class Fork(_Message, frozen=True, kw_only=True):
    """Make a host for one attempt; the socket that it speaks on comes along."""

    token: str


class Kill(_Message, frozen=True, kw_only=True):
    """End that host, and all that it started."""

    token: str


class Died(_Message, frozen=True, kw_only=True):
    """That host has ended, and nothing is left of it."""

    token: str
    status: int = 0
    """As ``os.waitpid`` gives it."""
    error: str = ""
    """Why it never began; empty: it did."""


Request: TypeAlias = Start | Check | Judge
Reply: TypeAlias = Ended | Checked | Judged
ToHost: TypeAlias = Begin | Request | Stop | Saved
FromHost: TypeAlias = Ready | Reply | Stopping | Started | Active | Save
