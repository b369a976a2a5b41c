"""Every error that crosses a boundary of the agent layer.

AgentLayerError
├── BadInputError          what a person typed or sent cannot be used      (command line: exit 2)
│   └── UnsupportedSandboxError   no sandbox of this kind can do what was asked
├── UnreachableError       a required server does not answer               (command line: exit 2)
│   └── AccessRefusedError        it answers, but not to us: another key, namespace or store than ours
├── CorruptRecordError     stored bytes are not what their checksum says
├── NotFoundError          no record has this id
├── LeaseLostError         a change carried a lease token that no longer holds, or a member's name was taken over
├── NotWholeError          an attempt was to be committed before all of its calls are stored
├── EngineError            an inference engine refused, died or lacks a capability
├── BackPressureError      the local log is over its quota, or a queue is full
├── CaptureError           a step lacks what training needs (no token ids, no log-probabilities)
├── RedactionError         the user's redaction failed, so nothing was recorded
├── EmptyGroupError        no rollout of a group has a reward
├── SandboxError           a sandbox could not be started, or was lost    (infrastructure, never the policy)
│   └── BoxExhaustedError      its own commands ended it, or left no room in it    (the policy)
└── AgentFailedError       the agent's own code or command failed

Messages name the subject, what failed, why, and what to do. All arguments are positional and passed to
``super().__init__``, so that every error pickles.
"""

__all__ = [
    "AccessRefusedError",
    "AgentFailedError",
    "AgentLayerError",
    "BackPressureError",
    "BadInputError",
    "BoxExhaustedError",
    "CaptureError",
    "CorruptRecordError",
    "EmptyGroupError",
    "EngineError",
    "LeaseLostError",
    "NotFoundError",
    "NotWholeError",
    "RedactionError",
    "SandboxError",
    "UnreachableError",
    "UnsupportedSandboxError",
]


class AgentLayerError(Exception):
    """Parent of every error that this project raises on purpose."""


class BadInputError(AgentLayerError):
    """What a person typed or a client sent cannot be used as it is."""


class UnsupportedSandboxError(BadInputError):
    """No sandbox of this kind can do what was asked, on any machine; another kind may."""


class UnreachableError(AgentLayerError):
    """A required server does not answer at its address."""


class AccessRefusedError(UnreachableError):
    """A server answers, but our key, namespace or store is not its own; to ask again changes nothing."""


class CorruptRecordError(AgentLayerError):
    """Stored bytes do not have the form or the checksum that they claim."""


class NotFoundError(AgentLayerError):
    """No stored record has this id."""


class LeaseLostError(AgentLayerError):
    """A lease token does not, or no longer, hold the rollout; or another process follows as this member now."""


class NotWholeError(AgentLayerError):
    """An attempt was to be sealed, but not every call that it started is stored."""


class EngineError(AgentLayerError):
    """An inference engine refused, died, or lacks what training needs of it."""


class BackPressureError(AgentLayerError):
    """A bounded place (local log, queue) is full; nothing was dropped, the caller must slow down."""


class CaptureError(AgentLayerError):
    """A captured step lacks what it is needed for, such as token ids."""


class RedactionError(AgentLayerError):
    """The user's function that redacts texts failed; nothing was recorded."""


class EmptyGroupError(AgentLayerError):
    """No rollout of the group has a reward, so there is no baseline."""


class SandboxError(AgentLayerError):
    """A sandbox could not be started, or was lost: the infrastructure failed, not the code inside."""


class BoxExhaustedError(SandboxError, OSError):
    """The commands of a sandbox ended it, or used up what it may have: the policy's doing, not the machine's.

    It is an ``OSError``, too, with number, reason and path, so that tools report it as any other.
    """


class AgentFailedError(AgentLayerError):
    """The agent's own code or command ended in an error."""
