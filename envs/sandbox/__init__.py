"""Sandboxes: where code that is not trusted runs.

``__all__`` names what users import; the other names serve the kinds.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.schema.sandbox import EXEC_SECONDS as EXEC_SECONDS
    from agent_layer.schema.sandbox import MAX_FILE as MAX_FILE
    from agent_layer.schema.sandbox import MAX_OUTPUT as MAX_OUTPUT
    from agent_layer.schema.sandbox import Entry as Entry
    from agent_layer.schema.sandbox import ExecResult as ExecResult
    from agent_layer.schema.sandbox import ExecStatus as ExecStatus
    from agent_layer.schema.sandbox import Isolation as Isolation
    from agent_layer.schema.sandbox import Process as Process
    from agent_layer.schema.sandbox import Resources as Resources
    from agent_layer.schema.sandbox import Sandbox as Sandbox
    from agent_layer.schema.sandbox import SandboxSpec as SandboxSpec
    from agent_layer.schema.sandbox import Snapshot as Snapshot
    from agent_layer.schema.sandbox import check_spec as check_spec
    from envs.sandbox.archive import pack_programs as pack_programs
    from envs.sandbox.kind import SandboxKind as SandboxKind
    from envs.sandbox.kind import Support as Support
    from envs.sandbox.pool import TAKE_SECONDS as TAKE_SECONDS
    from envs.sandbox.pool import PoolOptions as PoolOptions
    from envs.sandbox.pool import PoolStats as PoolStats
    from envs.sandbox.pool import SandboxPool as SandboxPool
    from envs.sandbox.pool import open_pool as open_pool
    from envs.sandbox.registry import list_kind_names as list_kind_names
    from envs.sandbox.registry import make_kind as make_kind
    from envs.sandbox.requests import BoxRequest as BoxRequest
    from envs.sandbox.requests import CloseBox as CloseBox
    from envs.sandbox.requests import Exec as Exec
    from envs.sandbox.requests import Fork as Fork
    from envs.sandbox.requests import ForwardingSandbox as ForwardingSandbox
    from envs.sandbox.requests import ListFolder as ListFolder
    from envs.sandbox.requests import Open as Open
    from envs.sandbox.requests import Pack as Pack
    from envs.sandbox.requests import Ping as Ping
    from envs.sandbox.requests import Read as Read
    from envs.sandbox.requests import Unpack as Unpack
    from envs.sandbox.requests import Write as Write
    from envs.sandbox.spec import ADDRESS_SPACE as ADDRESS_SPACE
    from envs.sandbox.spec import PATH as PATH
    from envs.sandbox.spec import ImageForm as ImageForm
    from envs.sandbox.spec import box_variables as box_variables
    from envs.sandbox.spec import image_form as image_form
    from envs.sandbox.supervisor import SandboxConnection as SandboxConnection
    from envs.sandbox.supervisor import connect_sandbox as connect_sandbox
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.sandbox.archive": ("pack_programs",),
            "envs.sandbox.supervisor": (
                "SandboxConnection",
                "connect_sandbox",
            ),
            "envs.sandbox.registry": (
                "list_kind_names",
                "make_kind",
            ),
            "envs.sandbox.pool": (
                "TAKE_SECONDS",
                "PoolOptions",
                "PoolStats",
                "SandboxPool",
                "open_pool",
            ),
            "agent_layer.schema.sandbox": (
                "EXEC_SECONDS",
                "MAX_FILE",
                "MAX_OUTPUT",
                "Entry",
                "ExecResult",
                "ExecStatus",
                "Isolation",
                "Process",
                "Resources",
                "Sandbox",
                "SandboxSpec",
                "Snapshot",
                "check_spec",
            ),
            "envs.sandbox.kind": (
                "SandboxKind",
                "Support",
            ),
            "envs.sandbox.requests": (
                "BoxRequest",
                "CloseBox",
                "Exec",
                "ForwardingSandbox",
                "Fork",
                "ListFolder",
                "Open",
                "Pack",
                "Ping",
                "Read",
                "Unpack",
                "Write",
            ),
            "envs.sandbox.spec": (
                "ADDRESS_SPACE",
                "PATH",
                "ImageForm",
                "box_variables",
                "image_form",
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
    "SandboxConnection",
    "SandboxKind",
    "SandboxPool",
    "SandboxSpec",
    "Snapshot",
    "Support",
    "connect_sandbox",
    "open_pool",
]
