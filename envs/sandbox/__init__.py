"""Sandboxes: where code that is not trusted runs.

``__all__`` names what users import; the other names serve the kinds.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "agent_layer.schema.sandbox": (
            "Entry ExecResult ExecStatus Isolation Process Resources Sandbox SandboxSpec Snapshot"
        ),
        "kind": "SandboxKind Support",
        "pool": "PoolOptions PoolStats SandboxPool open_pool",
        "supervisor.remote": "SandboxConnection connect_sandbox",
    },
    {
        "patterns": "expand_patterns",
        "registry": "list_kind_names make_kind",
        "requests": "BoxRequest Exec ForwardingSandbox Open",
        "supervisor.handle": "SupervisorHandle",
        "supervisor.messages": "BoxFacts CollectedFiles CommandTime TakeBox",
        "supervisor.remote": "AttemptSandbox",
    },
)
