"""The store: Redis index over segments in S3 or a directory. ``open_store()`` opens it for reading."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "consumers.follower": "GroupDelivery",
        "index.filters": "Filters",
        "index.rows": "TrajectoryRow",
        "page": "Page",
        "store": "Store open_store",
    },
    {
        "arrow.columns": "JSON json_text",
        "arrow.steps": "STEP_SCHEMA tabulate_steps",
        "arrow.trajectories": "TRAJECTORY_SCHEMA tabulate_rows",
        "cli_filters": "make_takes_filters parse_which takes_filters",
        "consumers.scripts": "CLAIM_SCRIPTS",
        "consumers.trained_batches": "list_batches",
        "index.aggregate": "By Summary SummaryField count_by_bucket count_by_fields find_newest_starts"
        " summarise_trajectories",
        "index.filters": "Which bucket_ends",
        "index.index": "Index",
        "index.plan": "Order",
        "index.restore": "enter_segments",
        "index.scripts": "COMMIT ENTER_REWARDS FETCH_MEMBERS FORGET MARK_COMMITTED RESTORE RETIRE",
        "maintenance.call_stats": "describe_call_stats",
        "maintenance.deletion": "DeletionReport",
        "maintenance.findings": "Finding",
        "maintenance.gc": "Grace",
        "maintenance.index_audit": "AUDIT_ROWS COUNT_ORPHAN_BITS",
        "maintenance.merge_plan": "Limits",
        "maintenance.rebuild": "Progress find_unindexed",
        "maintenance.restore": "restore_index",
        "maintenance.retention": "ExpiryReport",
        "reading.display": "show_row show_step show_trajectory step_rewards",
        "reading.labels": "make_label read_known_labels",
        "reading.reader": "pick_step pick_steps",
        "reading.rewards": "commit_reward find_current_reward read_rewards read_reward_lists read_topic_rewards",
        "reading.tokens": "read_step_tokens",
        "segments.blob_refs": "store_contents",
        "segments.blobs": "BlobLimits",
        "segments.fields": "FIELDS",
        "segments.format": (
            "SegmentBuilder StoredRecord build_segment list_segments read_chunk read_footer segment_key segment_name"
        ),
        "segments.scripts": "HOLD_BLOBS RELEASE_UNNEEDED",
        "segments.summary": "read_record",
        "segments.tombstones": "drop_deleted_owners owner_hash",
        "text.text_index": "TextMatch",
    },
)
