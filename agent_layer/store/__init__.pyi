# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .arrow.columns import JSON as JSON, json_text as json_text
from .arrow.steps import STEP_SCHEMA as STEP_SCHEMA, tabulate_steps as tabulate_steps
from .arrow.trajectories import TRAJECTORY_SCHEMA as TRAJECTORY_SCHEMA, tabulate_rows as tabulate_rows
from .cli_filters import make_takes_filters as make_takes_filters, parse_which as parse_which
from .cli_filters import takes_filters as takes_filters
from .consumers.follower import GroupDelivery as GroupDelivery
from .consumers.scripts import CLAIM_SCRIPTS as CLAIM_SCRIPTS
from .consumers.trained_batches import list_batches as list_batches
from .index.aggregate import By as By, Summary as Summary, SummaryField as SummaryField
from .index.aggregate import count_by_bucket as count_by_bucket, count_by_fields as count_by_fields
from .index.aggregate import find_newest_starts as find_newest_starts, summarise_trajectories as summarise_trajectories
from .index.filters import Filters as Filters, Which as Which, bucket_ends as bucket_ends
from .index.index import Index as Index
from .index.plan import Order as Order
from .index.restore import enter_segments as enter_segments
from .index.rows import TrajectoryRow as TrajectoryRow
from .index.scripts import COMMIT as COMMIT, ENTER_REWARDS as ENTER_REWARDS, FETCH_MEMBERS as FETCH_MEMBERS
from .index.scripts import FORGET as FORGET, MARK_COMMITTED as MARK_COMMITTED, RESTORE as RESTORE, RETIRE as RETIRE
from .maintenance.call_stats import describe_call_stats as describe_call_stats
from .maintenance.deletion import DeletionReport as DeletionReport
from .maintenance.findings import Finding as Finding
from .maintenance.gc import Grace as Grace
from .maintenance.index_audit import AUDIT_ROWS as AUDIT_ROWS, COUNT_ORPHAN_BITS as COUNT_ORPHAN_BITS
from .maintenance.merge_plan import Limits as Limits
from .maintenance.rebuild import Progress as Progress, find_unindexed as find_unindexed
from .maintenance.restore import restore_index as restore_index
from .maintenance.retention import ExpiryReport as ExpiryReport
from .page import Page as Page
from .reading.display import show_row as show_row, show_step as show_step, show_trajectory as show_trajectory
from .reading.display import step_rewards as step_rewards
from .reading.labels import make_label as make_label, read_known_labels as read_known_labels
from .reading.reader import pick_step as pick_step, pick_steps as pick_steps
from .reading.rewards import commit_reward as commit_reward, find_current_reward as find_current_reward
from .reading.rewards import read_reward_lists as read_reward_lists, read_rewards as read_rewards
from .reading.rewards import read_topic_rewards as read_topic_rewards
from .reading.tokens import read_step_tokens as read_step_tokens
from .segments.blob_refs import store_contents as store_contents
from .segments.blobs import BlobLimits as BlobLimits
from .segments.fields import FIELDS as FIELDS
from .segments.format import SegmentBuilder as SegmentBuilder, StoredRecord as StoredRecord
from .segments.format import build_segment as build_segment, list_segments as list_segments, read_chunk as read_chunk
from .segments.format import read_footer as read_footer, segment_key as segment_key, segment_name as segment_name
from .segments.scripts import HOLD_BLOBS as HOLD_BLOBS, RELEASE_UNNEEDED as RELEASE_UNNEEDED
from .segments.summary import read_record as read_record
from .segments.tombstones import drop_deleted_owners as drop_deleted_owners, owner_hash as owner_hash
from .store import Store as Store, open_store as open_store
from .text.text_index import TextMatch as TextMatch
__all__ = [
    "Filters", "GroupDelivery", "Page", "Store", "TrajectoryRow", "open_store",
]
