"""The vocabulary: every record that crosses a boundary.

``__all__`` names the records that people meet; the other names serve the rooms of this project.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.schema.codec import (
        LogRecord as LogRecord,
    )
    from agent_layer.schema.codec import (
        check_storable as check_storable,
    )
    from agent_layer.schema.codec import (
        decode as decode,
    )
    from agent_layer.schema.codec import (
        decode_footer as decode_footer,
    )
    from agent_layer.schema.codec import (
        decode_known as decode_known,
    )
    from agent_layer.schema.codec import (
        encode as encode,
    )
    from agent_layer.schema.codec import (
        owner_of as owner_of,
    )
    from agent_layer.schema.group import Fill as Fill
    from agent_layer.schema.group import Group
    from agent_layer.schema.ids import (
        check_name as check_name,
    )
    from agent_layer.schema.ids import (
        content_hash as content_hash,
    )
    from agent_layer.schema.ids import (
        group_id_of as group_id_of,
    )
    from agent_layer.schema.ids import (
        made_at as made_at,
    )
    from agent_layer.schema.ids import (
        new_id as new_id,
    )
    from agent_layer.schema.ids import (
        rollout_id_of as rollout_id_of,
    )
    from agent_layer.schema.ids import (
        split_trajectory_id as split_trajectory_id,
    )
    from agent_layer.schema.ids import (
        trajectory_id_of as trajectory_id_of,
    )
    from agent_layer.schema.messages import (
        UNREADABLE as UNREADABLE,
    )
    from agent_layer.schema.messages import (
        chat_messages_of as chat_messages_of,
    )
    from agent_layer.schema.messages import (
        object_of as object_of,
    )
    from agent_layer.schema.messages import (
        objects_of as objects_of,
    )
    from agent_layer.schema.messages import (
        parted as parted,
    )
    from agent_layer.schema.messages import (
        refer_to as refer_to,
    )
    from agent_layer.schema.messages import (
        resolve as resolve,
    )
    from agent_layer.schema.record import JsonObject as JsonObject
    from agent_layer.schema.record import Logprobs, TokenIds
    from agent_layer.schema.record import Record as Record
    from agent_layer.schema.reward import (
        Reward,
    )
    from agent_layer.schema.reward import (
        RewardSource as RewardSource,
    )
    from agent_layer.schema.reward import (
        RewardStatus as RewardStatus,
    )
    from agent_layer.schema.reward import (
        RewardTopic as RewardTopic,
    )
    from agent_layer.schema.reward import (
        current_rewards as current_rewards,
    )
    from agent_layer.schema.reward import (
        rollout_reward as rollout_reward,
    )
    from agent_layer.schema.reward import (
        topic_of as topic_of,
    )
    from agent_layer.schema.rollout import (
        FINAL_STATUSES as FINAL_STATUSES,
    )
    from agent_layer.schema.rollout import (
        Accepted as Accepted,
    )
    from agent_layer.schema.rollout import (
        AttemptStarted as AttemptStarted,
    )
    from agent_layer.schema.rollout import (
        Cause as Cause,
    )
    from agent_layer.schema.rollout import (
        Outcome,
    )
    from agent_layer.schema.rollout import (
        PhaseTimes as PhaseTimes,
    )
    from agent_layer.schema.rollout import (
        Resumed as Resumed,
    )
    from agent_layer.schema.rollout import (
        RolloutStatus as RolloutStatus,
    )
    from agent_layer.schema.segment import (
        ENDED as ENDED,
    )
    from agent_layer.schema.segment import (
        STARTED as STARTED,
    )
    from agent_layer.schema.segment import (
        BatchEntry as BatchEntry,
    )
    from agent_layer.schema.segment import (
        Block as Block,
    )
    from agent_layer.schema.segment import (
        Chunk as Chunk,
    )
    from agent_layer.schema.segment import (
        GroupEntry as GroupEntry,
    )
    from agent_layer.schema.segment import (
        PolicyEntry as PolicyEntry,
    )
    from agent_layer.schema.segment import (
        SegmentFooter as SegmentFooter,
    )
    from agent_layer.schema.segment import (
        Tombstone as Tombstone,
    )
    from agent_layer.schema.segment import (
        TrajectorySummary as TrajectorySummary,
    )
    from agent_layer.schema.step import (
        Action,
        Observation,
        PolicyRun,
        Step,
        StepState,
    )
    from agent_layer.schema.step import (
        CaptureLevel as CaptureLevel,
    )
    from agent_layer.schema.step import (
        Content as Content,
    )
    from agent_layer.schema.step import (
        ContentRef as ContentRef,
    )
    from agent_layer.schema.step import (
        GraphPlace as GraphPlace,
    )
    from agent_layer.schema.step import (
        PartSource as PartSource,
    )
    from agent_layer.schema.step import (
        PromptDelta as PromptDelta,
    )
    from agent_layer.schema.step import (
        Role as Role,
    )
    from agent_layer.schema.step import (
        StepPart as StepPart,
    )
    from agent_layer.schema.step import (
        StepStatus as StepStatus,
    )
    from agent_layer.schema.step import (
        Usage as Usage,
    )
    from agent_layer.schema.step import (
        tools_asked as tools_asked,
    )
    from agent_layer.schema.step import (
        tools_of as tools_of,
    )
    from agent_layer.schema.task import (
        NOT_SAMPLING as NOT_SAMPLING,
    )
    from agent_layer.schema.task import (
        Limits,
        RewardSpec,
        Task,
        TaskView,
    )
    from agent_layer.schema.task import (
        Partial as Partial,
    )
    from agent_layer.schema.task import (
        Split as Split,
    )
    from agent_layer.schema.task import (
        hash_input as hash_input,
    )
    from agent_layer.schema.training import (
        PolicyVersion,
        TrainedBatch,
        TrainingSample,
    )
    from agent_layer.schema.training import (
        StepRef as StepRef,
    )
    from agent_layer.schema.training import (
        TrainedRollout as TrainedRollout,
    )
    from agent_layer.schema.trajectory import (
        BREAK as BREAK,
    )
    from agent_layer.schema.trajectory import (
        Trajectory,
    )
    from agent_layer.schema.trajectory import (
        TrajectoryRecord as TrajectoryRecord,
    )
    from agent_layer.schema.trajectory import (
        alarms_of as alarms_of,
    )
    from agent_layer.schema.trajectory import (
        assemble_trajectory as assemble_trajectory,
    )
    from agent_layer.schema.trajectory import (
        cause_of_break as cause_of_break,
    )
    from agent_layer.schema.trajectory import (
        is_empty as is_empty,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.schema.codec": (
                "LogRecord",
                "check_storable",
                "decode",
                "decode_footer",
                "decode_known",
                "encode",
                "owner_of",
            ),
            "agent_layer.schema.group": (
                "Fill",
                "Group",
            ),
            "agent_layer.schema.ids": (
                "check_name",
                "content_hash",
                "group_id_of",
                "made_at",
                "new_id",
                "rollout_id_of",
                "split_trajectory_id",
                "trajectory_id_of",
            ),
            "agent_layer.schema.messages": (
                "UNREADABLE",
                "chat_messages_of",
                "object_of",
                "objects_of",
                "parted",
                "refer_to",
                "resolve",
            ),
            "agent_layer.schema.record": (
                "JsonObject",
                "Logprobs",
                "Record",
                "TokenIds",
            ),
            "agent_layer.schema.reward": (
                "Reward",
                "RewardSource",
                "RewardStatus",
                "RewardTopic",
                "current_rewards",
                "rollout_reward",
                "topic_of",
            ),
            "agent_layer.schema.rollout": (
                "Accepted",
                "AttemptStarted",
                "Cause",
                "FINAL_STATUSES",
                "Outcome",
                "PhaseTimes",
                "Resumed",
                "RolloutStatus",
            ),
            "agent_layer.schema.segment": (
                "BatchEntry",
                "Block",
                "Chunk",
                "ENDED",
                "GroupEntry",
                "PolicyEntry",
                "STARTED",
                "SegmentFooter",
                "Tombstone",
                "TrajectorySummary",
            ),
            "agent_layer.schema.step": (
                "Action",
                "CaptureLevel",
                "Content",
                "ContentRef",
                "GraphPlace",
                "Observation",
                "PartSource",
                "PolicyRun",
                "PromptDelta",
                "Role",
                "Step",
                "StepPart",
                "StepState",
                "StepStatus",
                "Usage",
                "tools_asked",
                "tools_of",
            ),
            "agent_layer.schema.task": (
                "Limits",
                "NOT_SAMPLING",
                "Partial",
                "RewardSpec",
                "Split",
                "Task",
                "TaskView",
                "hash_input",
            ),
            "agent_layer.schema.training": (
                "PolicyVersion",
                "StepRef",
                "TrainedBatch",
                "TrainedRollout",
                "TrainingSample",
            ),
            "agent_layer.schema.trajectory": (
                "BREAK",
                "Trajectory",
                "TrajectoryRecord",
                "alarms_of",
                "assemble_trajectory",
                "cause_of_break",
                "is_empty",
            ),
        },
    )

__all__ = [
    "Action",
    "Group",
    "Limits",
    "Logprobs",
    "Observation",
    "Outcome",
    "PolicyRun",
    "PolicyVersion",
    "Reward",
    "RewardSpec",
    "Step",
    "StepState",
    "Task",
    "TaskView",
    "TokenIds",
    "TrainedBatch",
    "TrainingSample",
    "Trajectory",
]
