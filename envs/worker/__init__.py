"""The worker: claim, run, score, seal, commit."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.worker.context import WorkerContext as WorkerContext
    from envs.worker.service import WorkOptions as WorkOptions
    from envs.worker.service import serve_worker as serve_worker
    from envs.worker.worker import wait_within as wait_within
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.worker.context": ("WorkerContext",),
            "envs.worker.service": (
                "WorkOptions",
                "serve_worker",
            ),
            "envs.worker.worker": ("wait_within",),
        },
    )
