"""How a training run is doing: reports of its steps, and the catalogue of what can be wrong."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.health.catalogue import CATALOGUE as CATALOGUE
    from agent_layer.health.catalogue import (
        HealthEntry as HealthEntry,
    )
    from agent_layer.health.catalogue import (
        HealthLimits as HealthLimits,
    )
    from agent_layer.health.catalogue import (
        find_unhealthy as find_unhealthy,
    )
    from agent_layer.health.catalogue import (
        set_limits as set_limits,
    )
    from agent_layer.health.progress import (
        HealthFinding as HealthFinding,
    )
    from agent_layer.health.progress import (
        RoundProgress as RoundProgress,
    )
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
            "agent_layer.health.catalogue": (
                "CATALOGUE",
                "HealthEntry",
                "HealthLimits",
                "find_unhealthy",
                "set_limits",
            ),
            "agent_layer.health.progress": (
                "HealthFinding",
                "RoundProgress",
                "StepProgress",
                "append_progress",
                "progress_path",
                "read_progress",
            ),
        },
    )
