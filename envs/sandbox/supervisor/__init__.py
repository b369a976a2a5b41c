"""One supervisor per worker's host: the only process that makes sandboxes, and what talks to it.

A worker takes boxes through a ``SupervisorHandle``. Agents, scorers and commands use ``connect_sandbox`` with the
address that the worker gives them, which holds a capability.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.sandbox.supervisor.handle import SupervisorHandle as SupervisorHandle
    from envs.sandbox.supervisor.messages import BoxFacts as BoxFacts
    from envs.sandbox.supervisor.messages import CollectedFiles as CollectedFiles
    from envs.sandbox.supervisor.messages import TakeBox as TakeBox
    from envs.sandbox.supervisor.messages import TakenBox as TakenBox
    from envs.sandbox.supervisor.remote import AttemptSandbox as AttemptSandbox
    from envs.sandbox.supervisor.remote import SandboxConnection as SandboxConnection
    from envs.sandbox.supervisor.remote import connect_sandbox as connect_sandbox
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.sandbox.supervisor.handle": ("SupervisorHandle",),
            "envs.sandbox.supervisor.messages": ("BoxFacts", "CollectedFiles", "TakeBox", "TakenBox"),
            "envs.sandbox.supervisor.remote": ("AttemptSandbox", "SandboxConnection", "connect_sandbox"),
        },
    )

__all__ = [
    "AttemptSandbox",
    "BoxFacts",
    "CollectedFiles",
    "SandboxConnection",
    "SupervisorHandle",
    "TakeBox",
    "TakenBox",
    "connect_sandbox",
]
