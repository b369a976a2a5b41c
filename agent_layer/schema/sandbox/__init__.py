"""Sandboxes as other rooms see them: what one has to be, what it offers, what it used up."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.schema.sandbox.box import EXEC_SECONDS as EXEC_SECONDS
    from agent_layer.schema.sandbox.box import MAX_FILE as MAX_FILE
    from agent_layer.schema.sandbox.box import MAX_OUTPUT as MAX_OUTPUT
    from agent_layer.schema.sandbox.box import Entry as Entry
    from agent_layer.schema.sandbox.box import ExecResult as ExecResult
    from agent_layer.schema.sandbox.box import ExecStatus as ExecStatus
    from agent_layer.schema.sandbox.box import Process as Process
    from agent_layer.schema.sandbox.box import Sandbox as Sandbox
    from agent_layer.schema.sandbox.box import Snapshot as Snapshot
    from agent_layer.schema.sandbox.spec import HOST_IMAGE as HOST_IMAGE
    from agent_layer.schema.sandbox.spec import ISOLATIONS as ISOLATIONS
    from agent_layer.schema.sandbox.spec import Isolation as Isolation
    from agent_layer.schema.sandbox.spec import Resources as Resources
    from agent_layer.schema.sandbox.spec import SandboxSpec as SandboxSpec
    from agent_layer.schema.sandbox.spec import SandboxUsage as SandboxUsage
    from agent_layer.schema.sandbox.spec import check_spec as check_spec
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.schema.sandbox.box": (
                "EXEC_SECONDS",
                "MAX_FILE",
                "MAX_OUTPUT",
                "Entry",
                "ExecResult",
                "ExecStatus",
                "Process",
                "Sandbox",
                "Snapshot",
            ),
            "agent_layer.schema.sandbox.spec": (
                "HOST_IMAGE",
                "ISOLATIONS",
                "Isolation",
                "Resources",
                "SandboxSpec",
                "SandboxUsage",
                "check_spec",
            ),
        },
    )
