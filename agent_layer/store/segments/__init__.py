"""The segment format, blobs and tombstones: what lies in the object store."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.store.segments.blob_refs import find_orphans as find_orphans
    from agent_layer.store.segments.blob_refs import remove_unneeded as remove_unneeded
    from agent_layer.store.segments.blob_refs import store_contents as store_contents
    from agent_layer.store.segments.blobs import BlobLimits as BlobLimits
    from agent_layer.store.segments.blobs import Contents as Contents
    from agent_layer.store.segments.blobs import fetch_contents as fetch_contents
    from agent_layer.store.segments.blobs import parse_blob_key as parse_blob_key
    from agent_layer.store.segments.blobs import read_blob as read_blob
    from agent_layer.store.segments.fields import COLUMNS as COLUMNS
    from agent_layer.store.segments.fields import FIELDS as FIELDS
    from agent_layer.store.segments.format import SealedSegment as SealedSegment
    from agent_layer.store.segments.format import Segment as Segment
    from agent_layer.store.segments.format import SegmentBuilder as SegmentBuilder
    from agent_layer.store.segments.format import StoredRecord as StoredRecord
    from agent_layer.store.segments.format import build_segment as build_segment
    from agent_layer.store.segments.format import is_segment_name as is_segment_name
    from agent_layer.store.segments.format import list_segments as list_segments
    from agent_layer.store.segments.format import read_chunk as read_chunk
    from agent_layer.store.segments.format import read_footer as read_footer
    from agent_layer.store.segments.format import salvage_segment as salvage_segment
    from agent_layer.store.segments.format import segment_key as segment_key
    from agent_layer.store.segments.format import segment_name as segment_name
    from agent_layer.store.segments.scripts import HOLD_BLOBS as HOLD_BLOBS
    from agent_layer.store.segments.scripts import KEY_PRELUDE as KEY_PRELUDE
    from agent_layer.store.segments.scripts import RELEASE_UNNEEDED as RELEASE_UNNEEDED
    from agent_layer.store.segments.summary import may_change_reward as may_change_reward
    from agent_layer.store.segments.summary import read_record as read_record
    from agent_layer.store.segments.tombstones import decode_names as decode_names
    from agent_layer.store.segments.tombstones import deletion_times as deletion_times
    from agent_layer.store.segments.tombstones import drop_deleted as drop_deleted
    from agent_layer.store.segments.tombstones import drop_deleted_owners as drop_deleted_owners
    from agent_layer.store.segments.tombstones import drop_deleted_rollouts as drop_deleted_rollouts
    from agent_layer.store.segments.tombstones import list_tombstones as list_tombstones
    from agent_layer.store.segments.tombstones import load_tombstones as load_tombstones
    from agent_layer.store.segments.tombstones import member_ids as member_ids
    from agent_layer.store.segments.tombstones import named_owners as named_owners
    from agent_layer.store.segments.tombstones import owner_hash as owner_hash
    from agent_layer.store.segments.tombstones import write_tombstones as write_tombstones
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.store.segments.blob_refs": (
                "find_orphans",
                "remove_unneeded",
                "store_contents",
            ),
            "agent_layer.store.segments.blobs": (
                "BlobLimits",
                "Contents",
                "parse_blob_key",
                "fetch_contents",
                "read_blob",
            ),
            "agent_layer.store.segments.fields": (
                "COLUMNS",
                "FIELDS",
            ),
            "agent_layer.store.segments.format": (
                "SealedSegment",
                "Segment",
                "SegmentBuilder",
                "StoredRecord",
                "build_segment",
                "is_segment_name",
                "list_segments",
                "read_chunk",
                "read_footer",
                "salvage_segment",
                "segment_key",
                "segment_name",
            ),
            "agent_layer.store.segments.scripts": (
                "HOLD_BLOBS",
                "KEY_PRELUDE",
                "RELEASE_UNNEEDED",
            ),
            "agent_layer.store.segments.summary": (
                "may_change_reward",
                "read_record",
            ),
            "agent_layer.store.segments.tombstones": (
                "deletion_times",
                "drop_deleted_rollouts",
                "drop_deleted_owners",
                "list_tombstones",
                "drop_deleted",
                "load_tombstones",
                "member_ids",
                "decode_names",
                "owner_hash",
                "named_owners",
                "write_tombstones",
            ),
        },
    )
