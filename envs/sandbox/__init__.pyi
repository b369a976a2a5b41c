# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .kind import SandboxKind as SandboxKind, Support as Support
from .patterns import expand_patterns as expand_patterns
from .pool import PoolOptions as PoolOptions, PoolStats as PoolStats, SandboxPool as SandboxPool, open_pool as open_pool
from .registry import list_kind_names as list_kind_names, make_kind as make_kind
from .requests import BoxRequest as BoxRequest, Exec as Exec, ForwardingSandbox as ForwardingSandbox, Open as Open
from .supervisor.handle import SupervisorHandle as SupervisorHandle
from .supervisor.messages import BoxFacts as BoxFacts, CollectedFiles as CollectedFiles, CommandTime as CommandTime
from .supervisor.messages import TakeBox as TakeBox
from .supervisor.remote import AttemptSandbox as AttemptSandbox, SandboxConnection as SandboxConnection
from .supervisor.remote import connect_sandbox as connect_sandbox
from agent_layer.schema.sandbox import Entry as Entry, ExecResult as ExecResult, ExecStatus as ExecStatus
from agent_layer.schema.sandbox import Isolation as Isolation, Process as Process, Resources as Resources
from agent_layer.schema.sandbox import Sandbox as Sandbox, SandboxSpec as SandboxSpec, Snapshot as Snapshot
__all__ = [
    "Entry", "ExecResult", "ExecStatus", "Isolation", "PoolOptions", "PoolStats", "Process", "Resources", "Sandbox",
    "SandboxConnection", "SandboxKind", "SandboxPool", "SandboxSpec", "Snapshot", "Support", "connect_sandbox",
    "open_pool",
]
