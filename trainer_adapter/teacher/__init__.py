"""On-policy distillation: a teacher's log-probability of each token that the policy sampled."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.teacher.targets import judge_group as judge_group
    from trainer_adapter.teacher.teacher import Teacher as Teacher
    from trainer_adapter.teacher.teacher import open_teacher as open_teacher
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.teacher.targets": ("judge_group",),
            "trainer_adapter.teacher.teacher": (
                "Teacher",
                "open_teacher",
            ),
        },
    )
