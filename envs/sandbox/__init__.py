"""Sandboxes: where code that is not trusted runs.

``__all__`` names what users import; the other names serve the kinds.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.sandbox.pool import PoolOptions as PoolOptions
    from envs.sandbox.pool import PoolStats as PoolStats
    from envs.sandbox.pool import SandboxPool as SandboxPool
    from envs.sandbox.pool import open_pool as open_pool
    from envs.sandbox.sandbox import EXEC_SECONDS as EXEC_SECONDS
    from envs.sandbox.sandbox import MAX_FILE as MAX_FILE
    from envs.sandbox.sandbox import MAX_OUTPUT as MAX_OUTPUT
    from envs.sandbox.sandbox import Entry as Entry
    from envs.sandbox.sandbox import ExecResult as ExecResult
    from envs.sandbox.sandbox import ExecStatus as ExecStatus
    from envs.sandbox.sandbox import Process as Process
    from envs.sandbox.sandbox import Sandbox as Sandbox
    from envs.sandbox.sandbox import SandboxKind as SandboxKind
    from envs.sandbox.sandbox import Snapshot as Snapshot
    from envs.sandbox.sandbox import Support as Support
    from envs.sandbox.spec import ADDRESS_SPACE as ADDRESS_SPACE
    from envs.sandbox.spec import PATH as PATH
    from envs.sandbox.spec import Isolation as Isolation
    from envs.sandbox.spec import Resources as Resources
    from envs.sandbox.spec import SandboxSpec as SandboxSpec
    from envs.sandbox.spec import box_variables as box_variables
    from envs.sandbox.spec import check_spec as check_spec
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.sandbox.pool": (
                "PoolOptions",
                "PoolStats",
                "SandboxPool",
                "open_pool",
            ),
            "envs.sandbox.sandbox": (
                "EXEC_SECONDS",
                "MAX_FILE",
                "MAX_OUTPUT",
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
                "ADDRESS_SPACE",
                "PATH",
                "Isolation",
                "Resources",
                "SandboxSpec",
                "box_variables",
                "check_spec",
            ),
        },
    )

__all__ = [
    "Entry",
    "ExecResult",
    "ExecStatus",
    "Isolation",
    "PoolOptions",
    "PoolStats",
    "Process",
    "Resources",
    "Sandbox",
    "SandboxKind",
    "SandboxPool",
    "SandboxSpec",
    "Snapshot",
    "Support",
    "open_pool",
]
