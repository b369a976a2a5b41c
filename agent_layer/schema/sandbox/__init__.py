"""Sandboxes as other rooms see them: what one has to be, what it offers, what it used up."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "box": "EXEC_SECONDS MAX_FILE MAX_OUTPUT Entry ExecResult ExecStatus Process Sandbox Snapshot",
        "spec": "HOST_IMAGE ISOLATIONS Isolation Resources SandboxSpec check_spec",
        "usage": "EndOfBox SandboxUsage",
    },
)
