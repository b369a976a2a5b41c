"""The vocabulary: every record that crosses a boundary.

``__all__`` names the records that people meet; the other names serve the rooms of this project.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "record": "Logprobs TokenIds",
        "reward": "Reward",
        "rollout": "Group Outcome",
        "step": "Action Observation PolicyRun Step StepState",
        "task": "Limits RewardSpec Task TaskView",
        "training": "PolicyVersion TrainedBatch TrainingSample",
        "trajectory": "Trajectory",
    },
    {
        "codec": "LogRecord check_storable decode decode_footer decode_known encode record_owner",
        "contamination.held_out": """HOLDOUT_LABEL AuditVerdict HeldOutMatch HeldOutSet HeldOutTasks Holdout
        LeftOutTask fingerprint_task hold_out""",
        "contamination.sketch": "measure_jaccard",
        "contamination.text": "read_task_text",
        "findings": (
            "BREAK DISAGREES MISSED_FORM NO_POLICY_CALL REFUSED SELF_INFLICTED UNFINISHED UNREAD TrajectoryAlarm"
            " find_alarms finding_kinds is_empty_answer prefix_break_cause"
        ),
        "ids": (
            "check_name content_hash derive_seed id_timestamp make_group_id make_rollout_id make_trajectory_id new_id"
            " owner_text split_owner split_trajectory_id trajectory_owner"
        ),
        "json_forms": "UNREADABLE json_text json_value mend_surrogates read_json read_yaml safe_repr",
        "json_schema": "find_misfit",
        "messages": (
            "MEDIA as_json_object as_json_objects find_media parse_json_text readable_message refer_to resolve"
            " resolve_in to_chat_messages to_part_message"
        ),
        "record": "Advantages JsonObject Record known_time sortable_time",
        "reward": (
            "SHARED_JUDGE TAMPERING Label RewardSource RewardStatus RewardTopic counted_score current_rewards"
            " label_rank newest_labels plain_number read_score reward_topic rollout_reward"
        ),
        "rollout": "FINAL_STATUSES Accepted AttemptStarted Cause Fill PhaseTimes Resumed RolloutStatus",
        "segment": (
            "ENDED STARTED BatchEntry Block Chunk GroupEntry PolicyEntry SegmentFooter Tombstone TrajectorySummary"
        ),
        "step": (
            "CaptureLevel Content ContentRef GraphPlace PartSource PromptDelta Role StepPart StepStatus Usage"
            " is_caller_note requested_tool_names"
        ),
        "task": "NOT_SAMPLING History ShortGroupPolicy SideCall Split WallFault check_side_calls hash_input",
        "trace": "TraceContext derive_span_id derive_trace_id parse_trace",
        "training": (
            "AdvantageRule CheckpointRef DistillRule ExcludedRollout LengthRule LongRows Overlong StepRef"
            " TrainedRollout TrainedTokens Vocabulary"
        ),
        "trajectory": "ABANDONED TrajectoryRecord assemble_trajectory",
        "wire.bounds": "BodyBounds check_bounds",
        "wire.gateway_api": (
            "ACCESS AGENT_HEADER CALL_HEADER CLOSE_ROLLOUT END_ROLLOUT KEY_PREFIX MARK_ROLLOUT MAX_LEASE_SECONDS"
            " OPEN_ROLLOUT PAUSE_ROLLOUT RENEW_ROLLOUTS REWARD_ROLLOUT ROLE_HEADER ROLLOUT_HEADER RUN_HEADER"
            " AccessRequest CloseRequest ClosedRollout EndRequest EndStatus EndedRollout Endpoint GatewayFacts"
            " HolderRequest MarkedRollout OpenRequest OpenedRollout PolicyFault RecordedReward RenewRequest"
            " RenewedRollouts Resumption RewardRequest make_attempt_started"
        ),
        "wire.streamed_messages": "GrowingCall GrowingCalls GrowingMessage",
    },
)
