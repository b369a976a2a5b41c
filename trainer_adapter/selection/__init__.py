"""Which tasks are trained, and with how many rollouts: curricula, filters and ramps by name. Pure."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.selection.registry import MOST_SUCCESSES as MOST_SUCCESSES
    from trainer_adapter.selection.registry import Curriculum as Curriculum
    from trainer_adapter.selection.registry import LevelRamp as LevelRamp
    from trainer_adapter.selection.registry import TaskFilter as TaskFilter
    from trainer_adapter.selection.success_between import SuccessBetween as SuccessBetween
    from trainer_adapter.selection.success_share import SuccessShare as SuccessShare
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.selection.registry": ("MOST_SUCCESSES", "Curriculum", "LevelRamp", "TaskFilter"),
            "trainer_adapter.selection.success_between": ("SuccessBetween",),
            "trainer_adapter.selection.success_share": ("SuccessShare",),
        },
    )
