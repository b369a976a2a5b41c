"""How a training run is doing: the reports of its steps."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.health.progress import (
        StepProgress as StepProgress,
    )
    from agent_layer.health.progress import (
        append_progress as append_progress,
    )
    from agent_layer.health.progress import (
        progress_path as progress_path,
    )
    from agent_layer.health.progress import (
        read_progress as read_progress,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.health.progress": (
                "StepProgress",
                "append_progress",
                "progress_path",
                "read_progress",
            ),
        },
    )
