"""Sandboxes: where code that is not trusted runs."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.sandbox.sandbox import Entry, ExecResult, ExecStatus, Process, Sandbox, SandboxKind, Snapshot, Support
    from envs.sandbox.spec import Isolation, Resources, SandboxSpec
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.sandbox.sandbox": (
                "Entry",
                "ExecResult",
                "ExecStatus",
                "Process",
                "Sandbox",
                "SandboxKind",
                "Snapshot",
                "Support",
            ),
            "envs.sandbox.spec": (
                "Isolation",
                "Resources",
                "SandboxSpec",
            ),
        },
    )

__all__ = [
    "Entry",
    "ExecResult",
    "ExecStatus",
    "Isolation",
    "Process",
    "Resources",
    "Sandbox",
    "SandboxKind",
    "SandboxSpec",
    "Snapshot",
    "Support",
]
