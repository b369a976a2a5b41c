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
        record_owner as record_owner,
    )
    from agent_layer.schema.findings import BREAK as BREAK
    from agent_layer.schema.findings import DISAGREES as DISAGREES
    from agent_layer.schema.findings import NO_POLICY_CALL as NO_POLICY_CALL
    from agent_layer.schema.findings import REFUSED as REFUSED
    from agent_layer.schema.findings import UNFINISHED as UNFINISHED
    from agent_layer.schema.findings import UNREAD as UNREAD
    from agent_layer.schema.findings import TrajectoryAlarm as TrajectoryAlarm
    from agent_layer.schema.findings import find_alarms as find_alarms
    from agent_layer.schema.findings import finding_kinds as finding_kinds
    from agent_layer.schema.findings import is_empty_answer as is_empty_answer
    from agent_layer.schema.findings import prefix_break_cause as prefix_break_cause
    from agent_layer.schema.ids import check_name as check_name
    from agent_layer.schema.ids import content_hash as content_hash
    from agent_layer.schema.ids import derive_seed as derive_seed
    from agent_layer.schema.ids import id_timestamp as id_timestamp
    from agent_layer.schema.ids import make_group_id as make_group_id
    from agent_layer.schema.ids import make_rollout_id as make_rollout_id
    from agent_layer.schema.ids import make_trajectory_id as make_trajectory_id
    from agent_layer.schema.ids import new_id as new_id
    from agent_layer.schema.ids import owner_text as owner_text
    from agent_layer.schema.ids import split_owner as split_owner
    from agent_layer.schema.ids import split_trajectory_id as split_trajectory_id
    from agent_layer.schema.ids import trajectory_owner as trajectory_owner
    from agent_layer.schema.messages import (
        MEDIA as MEDIA,
    )
    from agent_layer.schema.messages import (
        UNREADABLE as UNREADABLE,
    )
    from agent_layer.schema.messages import (
        as_json_object as as_json_object,
    )
    from agent_layer.schema.messages import (
        as_json_objects as as_json_objects,
    )
    from agent_layer.schema.messages import (
        find_media as find_media,
    )
    from agent_layer.schema.messages import (
        parse_json_text as parse_json_text,
    )
    from agent_layer.schema.messages import (
        refer_to as refer_to,
    )
    from agent_layer.schema.messages import (
        resolve as resolve,
    )
    from agent_layer.schema.messages import (
        resolve_in as resolve_in,
    )
    from agent_layer.schema.messages import (
        to_chat_messages as to_chat_messages,
    )
    from agent_layer.schema.messages import (
        to_part_message as to_part_message,
    )
    from agent_layer.schema.record import Advantages as Advantages
    from agent_layer.schema.record import JsonObject as JsonObject
    from agent_layer.schema.record import Logprobs, TokenIds
    from agent_layer.schema.record import Record as Record
    from agent_layer.schema.record import known_time as known_time
    from agent_layer.schema.record import sortable_time as sortable_time
    from agent_layer.schema.reward import TAMPERING as TAMPERING
    from agent_layer.schema.reward import Label as Label
    from agent_layer.schema.reward import LabelRank as LabelRank
    from agent_layer.schema.reward import (
        Reward,
    )
    from agent_layer.schema.reward import RewardSource as RewardSource
    from agent_layer.schema.reward import RewardStatus as RewardStatus
    from agent_layer.schema.reward import RewardTopic as RewardTopic
    from agent_layer.schema.reward import counted_score as counted_score
    from agent_layer.schema.reward import current_labels as current_labels
    from agent_layer.schema.reward import current_rewards as current_rewards
    from agent_layer.schema.reward import label_rank as label_rank
    from agent_layer.schema.reward import newest_labels as newest_labels
    from agent_layer.schema.reward import plain_number as plain_number
    from agent_layer.schema.reward import read_score as read_score
    from agent_layer.schema.reward import reward_topic as reward_topic
    from agent_layer.schema.reward import rollout_reward as rollout_reward
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
    from agent_layer.schema.rollout import Fill as Fill
    from agent_layer.schema.rollout import (
        Group,
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
        requested_tool_names as requested_tool_names,
    )
    from agent_layer.schema.step import (
        tool_names as tool_names,
    )
    from agent_layer.schema.task import (
        NOT_SAMPLING as NOT_SAMPLING,
    )
    from agent_layer.schema.task import (
        History as History,
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
        AdvantageRule as AdvantageRule,
    )
    from agent_layer.schema.training import (
        DistillRule as DistillRule,
    )
    from agent_layer.schema.training import (
        ExcludedRollout as ExcludedRollout,
    )
    from agent_layer.schema.training import (
        LengthRule as LengthRule,
    )
    from agent_layer.schema.training import (
        LongRows as LongRows,
    )
    from agent_layer.schema.training import (
        Overlong as Overlong,
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
    from agent_layer.schema.training import (
        TrainedTokens as TrainedTokens,
    )
    from agent_layer.schema.training import (
        Vocabulary as Vocabulary,
    )
    from agent_layer.schema.trajectory import (
        ABANDONED as ABANDONED,
    )
    from agent_layer.schema.trajectory import (
        Trajectory,
    )
    from agent_layer.schema.trajectory import (
        TrajectoryRecord as TrajectoryRecord,
    )
    from agent_layer.schema.trajectory import (
        assemble_trajectory as assemble_trajectory,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.schema.findings": (
                "TrajectoryAlarm",
                "BREAK",
                "DISAGREES",
                "NO_POLICY_CALL",
                "REFUSED",
                "UNFINISHED",
                "UNREAD",
                "find_alarms",
                "finding_kinds",
                "is_empty_answer",
                "prefix_break_cause",
            ),
            "agent_layer.schema.codec": (
                "LogRecord",
                "check_storable",
                "decode",
                "decode_footer",
                "decode_known",
                "encode",
                "record_owner",
            ),
            "agent_layer.schema.ids": (
                "check_name",
                "content_hash",
                "derive_seed",
                "id_timestamp",
                "make_group_id",
                "make_rollout_id",
                "make_trajectory_id",
                "new_id",
                "owner_text",
                "split_owner",
                "split_trajectory_id",
                "trajectory_owner",
            ),
            "agent_layer.schema.messages": (
                "UNREADABLE",
                "as_json_object",
                "MEDIA",
                "as_json_objects",
                "find_media",
                "parse_json_text",
                "refer_to",
                "resolve",
                "resolve_in",
                "to_chat_messages",
                "to_part_message",
            ),
            "agent_layer.schema.record": (
                "Advantages",
                "JsonObject",
                "Logprobs",
                "Record",
                "TokenIds",
                "known_time",
                "sortable_time",
            ),
            "agent_layer.schema.reward": (
                "Label",
                "LabelRank",
                "Reward",
                "RewardSource",
                "RewardStatus",
                "RewardTopic",
                "TAMPERING",
                "counted_score",
                "current_labels",
                "current_rewards",
                "label_rank",
                "newest_labels",
                "plain_number",
                "read_score",
                "reward_topic",
                "rollout_reward",
            ),
            "agent_layer.schema.rollout": (
                "Accepted",
                "AttemptStarted",
                "Cause",
                "FINAL_STATUSES",
                "Fill",
                "Group",
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
                "requested_tool_names",
                "tool_names",
            ),
            "agent_layer.schema.task": (
                "History",
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
                "AdvantageRule",
                "DistillRule",
                "ExcludedRollout",
                "LengthRule",
                "LongRows",
                "Overlong",
                "PolicyVersion",
                "StepRef",
                "TrainedBatch",
                "TrainedRollout",
                "TrainedTokens",
                "TrainingSample",
                "Vocabulary",
            ),
            "agent_layer.schema.trajectory": (
                "ABANDONED",
                "Trajectory",
                "TrajectoryRecord",
                "assemble_trajectory",
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
