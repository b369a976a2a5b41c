# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .codec import LogRecord as LogRecord, check_storable as check_storable, decode as decode
from .codec import decode_footer as decode_footer, decode_known as decode_known, encode as encode
from .codec import record_owner as record_owner
from .contamination.held_out import AuditVerdict as AuditVerdict, HOLDOUT_LABEL as HOLDOUT_LABEL
from .contamination.held_out import HeldOutMatch as HeldOutMatch, HeldOutSet as HeldOutSet, HeldOutTasks as HeldOutTasks
from .contamination.held_out import Holdout as Holdout, LeftOutTask as LeftOutTask, fingerprint_task as fingerprint_task
from .contamination.held_out import hold_out as hold_out
from .contamination.sketch import measure_jaccard as measure_jaccard
from .contamination.text import read_task_text as read_task_text
from .findings import BREAK as BREAK, DISAGREES as DISAGREES, MISSED_FORM as MISSED_FORM
from .findings import NO_POLICY_CALL as NO_POLICY_CALL, REFUSED as REFUSED, SELF_INFLICTED as SELF_INFLICTED
from .findings import TrajectoryAlarm as TrajectoryAlarm, UNFINISHED as UNFINISHED, UNREAD as UNREAD
from .findings import find_alarms as find_alarms, finding_kinds as finding_kinds, is_empty_answer as is_empty_answer
from .findings import prefix_break_cause as prefix_break_cause
from .ids import check_name as check_name, content_hash as content_hash, derive_seed as derive_seed
from .ids import id_timestamp as id_timestamp, make_group_id as make_group_id, make_rollout_id as make_rollout_id
from .ids import make_trajectory_id as make_trajectory_id, new_id as new_id, owner_text as owner_text
from .ids import split_owner as split_owner, split_trajectory_id as split_trajectory_id
from .ids import trajectory_owner as trajectory_owner
from .json_forms import UNREADABLE as UNREADABLE, json_text as json_text, json_value as json_value
from .json_forms import mend_surrogates as mend_surrogates, read_json as read_json, read_yaml as read_yaml
from .json_forms import safe_repr as safe_repr
from .json_schema import find_misfit as find_misfit
from .messages import MEDIA as MEDIA, as_json_object as as_json_object, as_json_objects as as_json_objects
from .messages import find_media as find_media, parse_json_text as parse_json_text, readable_message as readable_message
from .messages import refer_to as refer_to, resolve as resolve, resolve_in as resolve_in
from .messages import to_chat_messages as to_chat_messages, to_part_message as to_part_message
from .record import Advantages as Advantages, JsonObject as JsonObject, Logprobs as Logprobs, Record as Record
from .record import TokenIds as TokenIds, known_time as known_time, sortable_time as sortable_time
from .reward import Label as Label, Reward as Reward, RewardSource as RewardSource, RewardStatus as RewardStatus
from .reward import RewardTopic as RewardTopic, SHARED_JUDGE as SHARED_JUDGE, TAMPERING as TAMPERING
from .reward import counted_score as counted_score, current_rewards as current_rewards, label_rank as label_rank
from .reward import newest_labels as newest_labels, plain_number as plain_number, read_score as read_score
from .reward import reward_topic as reward_topic, rollout_reward as rollout_reward
from .rollout import Accepted as Accepted, AttemptStarted as AttemptStarted, Cause as Cause
from .rollout import FINAL_STATUSES as FINAL_STATUSES, Fill as Fill, Group as Group, Outcome as Outcome
from .rollout import PhaseTimes as PhaseTimes, Resumed as Resumed, RolloutStatus as RolloutStatus
from .segment import BatchEntry as BatchEntry, Block as Block, Chunk as Chunk, ENDED as ENDED, GroupEntry as GroupEntry
from .segment import PolicyEntry as PolicyEntry, STARTED as STARTED, SegmentFooter as SegmentFooter
from .segment import Tombstone as Tombstone, TrajectorySummary as TrajectorySummary
from .step import Action as Action, CaptureLevel as CaptureLevel, Content as Content, ContentRef as ContentRef
from .step import GraphPlace as GraphPlace, Observation as Observation, PartSource as PartSource, PolicyRun as PolicyRun
from .step import PromptDelta as PromptDelta, Role as Role, Step as Step, StepPart as StepPart, StepState as StepState
from .step import StepStatus as StepStatus, Usage as Usage, is_caller_note as is_caller_note
from .step import requested_tool_names as requested_tool_names
from .task import History as History, Limits as Limits, NOT_SAMPLING as NOT_SAMPLING, RewardSpec as RewardSpec
from .task import ShortGroupPolicy as ShortGroupPolicy, SideCall as SideCall, Split as Split, Task as Task
from .task import TaskView as TaskView, WallFault as WallFault, check_side_calls as check_side_calls
from .task import hash_input as hash_input
from .trace import TraceContext as TraceContext, derive_span_id as derive_span_id, derive_trace_id as derive_trace_id
from .trace import parse_trace as parse_trace
from .training import AdvantageRule as AdvantageRule, CheckpointRef as CheckpointRef, DistillRule as DistillRule
from .training import ExcludedRollout as ExcludedRollout, LengthRule as LengthRule, LongRows as LongRows
from .training import Overlong as Overlong, PolicyVersion as PolicyVersion, StepRef as StepRef
from .training import TrainedBatch as TrainedBatch, TrainedRollout as TrainedRollout, TrainedTokens as TrainedTokens
from .training import TrainingSample as TrainingSample, Vocabulary as Vocabulary
from .trajectory import ABANDONED as ABANDONED, Trajectory as Trajectory, TrajectoryRecord as TrajectoryRecord
from .trajectory import assemble_trajectory as assemble_trajectory
from .wire.bounds import BodyBounds as BodyBounds, check_bounds as check_bounds
from .wire.gateway_api import ACCESS as ACCESS, AGENT_HEADER as AGENT_HEADER, AccessRequest as AccessRequest
from .wire.gateway_api import CALL_HEADER as CALL_HEADER, CLOSE_ROLLOUT as CLOSE_ROLLOUT, CloseRequest as CloseRequest
from .wire.gateway_api import ClosedRollout as ClosedRollout, END_ROLLOUT as END_ROLLOUT, EndRequest as EndRequest
from .wire.gateway_api import EndStatus as EndStatus, EndedRollout as EndedRollout, Endpoint as Endpoint
from .wire.gateway_api import GatewayFacts as GatewayFacts, HolderRequest as HolderRequest, KEY_PREFIX as KEY_PREFIX
from .wire.gateway_api import MARK_ROLLOUT as MARK_ROLLOUT, MAX_LEASE_SECONDS as MAX_LEASE_SECONDS
from .wire.gateway_api import MarkedRollout as MarkedRollout, OPEN_ROLLOUT as OPEN_ROLLOUT, OpenRequest as OpenRequest
from .wire.gateway_api import OpenedRollout as OpenedRollout, PAUSE_ROLLOUT as PAUSE_ROLLOUT, PolicyFault as PolicyFault
from .wire.gateway_api import RENEW_ROLLOUTS as RENEW_ROLLOUTS, REWARD_ROLLOUT as REWARD_ROLLOUT
from .wire.gateway_api import ROLE_HEADER as ROLE_HEADER, ROLLOUT_HEADER as ROLLOUT_HEADER, RUN_HEADER as RUN_HEADER
from .wire.gateway_api import RecordedReward as RecordedReward, RenewRequest as RenewRequest
from .wire.gateway_api import RenewedRollouts as RenewedRollouts, Resumption as Resumption
from .wire.gateway_api import RewardRequest as RewardRequest, make_attempt_started as make_attempt_started
from .wire.streamed_messages import GrowingCall as GrowingCall, GrowingCalls as GrowingCalls
from .wire.streamed_messages import GrowingMessage as GrowingMessage
__all__ = [
    "Action", "Group", "Limits", "Logprobs", "Observation", "Outcome", "PolicyRun", "PolicyVersion", "Reward",
    "RewardSpec", "Step", "StepState", "Task", "TaskView", "TokenIds", "TrainedBatch", "TrainingSample", "Trajectory",
]
