"""Checkpoints of attempts, so that an attempt resumes on another worker."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.checkpoints.langgraph import check_graph as check_graph
    from envs.checkpoints.langgraph import run_graph as run_graph
    from envs.checkpoints.remote import RemoteCheckpointer as RemoteCheckpointer
    from envs.checkpoints.store import CheckpointStore as CheckpointStore
    from envs.checkpoints.store import LeaseCheckpointer as LeaseCheckpointer
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.checkpoints.langgraph": (
                "check_graph",
                "run_graph",
            ),
            "envs.checkpoints.remote": ("RemoteCheckpointer",),
            "envs.checkpoints.store": (
                "CheckpointStore",
                "LeaseCheckpointer",
            ),
        },
    )
