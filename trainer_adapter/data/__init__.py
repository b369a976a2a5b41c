"""From trajectories to rows: samples, advantages, groups, replay. Pure functions."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "advantages": (
            "JudgedValues TrainingBatch advantage_rule assign_credit group_advantages select_batch value_advantages"
        ),
        "credit": "CreditRule CreditedValue JudgedRollout RolloutSamples",
        "exclusions": "find_exclusions",
        "groups": "GroupIntake count_step read_group success_by_task",
        "lengths": "NO_BOUNDS ModelBounds read_bounds",
        "max_staleness": "plan_start_versions",
        "own_parts": "check_advantage check_credit check_own_parts",
        "replay": "Replay rebuild_batch record_batch",
        "samples": "SampleSet read_samples samples_of",
        "update_record": "TokenColumns gap_by_engine list_calls record_tokens",
    },
)
