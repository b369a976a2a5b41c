"""From trajectories to rows: samples, advantages, groups, replay. Pure functions."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.data.advantages import (
        TrainingBatch as TrainingBatch,
    )
    from trainer_adapter.data.advantages import (
        advantage_rule as advantage_rule,
    )
    from trainer_adapter.data.advantages import (
        assign_credit as assign_credit,
    )
    from trainer_adapter.data.advantages import (
        group_advantages as group_advantages,
    )
    from trainer_adapter.data.advantages import (
        select_batch as select_batch,
    )
    from trainer_adapter.data.credit import CreditRule as CreditRule
    from trainer_adapter.data.credit import RolloutSamples as RolloutSamples
    from trainer_adapter.data.exclusions import (
        find_exclusions as find_exclusions,
    )
    from trainer_adapter.data.groups import (
        GroupIntake as GroupIntake,
    )
    from trainer_adapter.data.groups import (
        StepCounts as StepCounts,
    )
    from trainer_adapter.data.groups import (
        count_step as count_step,
    )
    from trainer_adapter.data.groups import (
        plan_start_versions as plan_start_versions,
    )
    from trainer_adapter.data.groups import (
        read_group as read_group,
    )
    from trainer_adapter.data.groups import (
        success_by_task as success_by_task,
    )
    from trainer_adapter.data.lengths import NO_BOUNDS as NO_BOUNDS
    from trainer_adapter.data.lengths import ModelBounds as ModelBounds
    from trainer_adapter.data.lengths import read_bounds as read_bounds
    from trainer_adapter.data.microbatches import split_by_length as split_by_length
    from trainer_adapter.data.replay import (
        Replay as Replay,
    )
    from trainer_adapter.data.replay import (
        rebuild_batch as rebuild_batch,
    )
    from trainer_adapter.data.replay import (
        record_batch as record_batch,
    )
    from trainer_adapter.data.samples import samples_of as samples_of
    from trainer_adapter.data.update_record import (
        TokenColumns as TokenColumns,
    )
    from trainer_adapter.data.update_record import (
        gap_by_engine as gap_by_engine,
    )
    from trainer_adapter.data.update_record import (
        list_calls as list_calls,
    )
    from trainer_adapter.data.update_record import (
        record_tokens as record_tokens,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.data.advantages": (
                "TrainingBatch",
                "advantage_rule",
                "assign_credit",
                "group_advantages",
                "select_batch",
            ),
            "trainer_adapter.data.lengths": (
                "NO_BOUNDS",
                "ModelBounds",
                "read_bounds",
            ),
            "trainer_adapter.data.credit": (
                "CreditRule",
                "RolloutSamples",
            ),
            "trainer_adapter.data.groups": (
                "GroupIntake",
                "StepCounts",
                "count_step",
                "plan_start_versions",
                "read_group",
                "success_by_task",
            ),
            "trainer_adapter.data.microbatches": ("split_by_length",),
            "trainer_adapter.data.replay": (
                "Replay",
                "rebuild_batch",
                "record_batch",
            ),
            "trainer_adapter.data.update_record": (
                "TokenColumns",
                "list_calls",
                "gap_by_engine",
                "record_tokens",
            ),
            "trainer_adapter.data.exclusions": ("find_exclusions",),
            "trainer_adapter.data.samples": ("samples_of",),
        },
    )
