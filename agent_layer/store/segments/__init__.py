"""The segment format, blobs and tombstones: what lies in the object store."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.store.segments.blob_refs import find_orphans as find_orphans
    from agent_layer.store.segments.blob_refs import remove_unneeded as remove_unneeded
    from agent_layer.store.segments.blob_refs import store_contents as store_contents
    from agent_layer.store.segments.blobs import BlobLimits as BlobLimits
    from agent_layer.store.segments.blobs import Contents as Contents
    from agent_layer.store.segments.blobs import blob_at as blob_at
    from agent_layer.store.segments.blobs import fill_in as fill_in
    from agent_layer.store.segments.blobs import read_blob as read_blob
    from agent_layer.store.segments.fields import COLUMNS as COLUMNS
    from agent_layer.store.segments.fields import FIELDS as FIELDS
    from agent_layer.store.segments.format import SealedSegment as SealedSegment
    from agent_layer.store.segments.format import Segment as Segment
    from agent_layer.store.segments.format import SegmentBuilder as SegmentBuilder
    from agent_layer.store.segments.format import StoredRecord as StoredRecord
    from agent_layer.store.segments.format import build_segment as build_segment
    from agent_layer.store.segments.format import is_ours as is_ours
    from agent_layer.store.segments.format import list_segments as list_segments
    from agent_layer.store.segments.format import read_chunk as read_chunk
    from agent_layer.store.segments.format import read_footer as read_footer
    from agent_layer.store.segments.format import salvage_segment as salvage_segment
    from agent_layer.store.segments.format import segment_key as segment_key
    from agent_layer.store.segments.format import segment_name as segment_name
    from agent_layer.store.segments.scripts import HOLD_BLOBS as HOLD_BLOBS
    from agent_layer.store.segments.scripts import KEY_PRELUDE as KEY_PRELUDE
    from agent_layer.store.segments.scripts import RELEASE_UNNEEDED as RELEASE_UNNEEDED
    from agent_layer.store.segments.summary import bears_on_reward as bears_on_reward
    from agent_layer.store.segments.summary import read_record as read_record
    from agent_layer.store.segments.tombstones import deaths_of as deaths_of
    from agent_layer.store.segments.tombstones import is_batch as is_batch
    from agent_layer.store.segments.tombstones import is_group as is_group
    from agent_layer.store.segments.tombstones import leave_out as leave_out
    from agent_layer.store.segments.tombstones import leave_out_dead as leave_out_dead
    from agent_layer.store.segments.tombstones import list_tombstones as list_tombstones
    from agent_layer.store.segments.tombstones import living_records as living_records
    from agent_layer.store.segments.tombstones import load_tombstones as load_tombstones
    from agent_layer.store.segments.tombstones import members_of as members_of
    from agent_layer.store.segments.tombstones import names_in as names_in
    from agent_layer.store.segments.tombstones import owner_hash as owner_hash
    from agent_layer.store.segments.tombstones import owners_in as owners_in
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
                "blob_at",
                "fill_in",
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
                "is_ours",
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
                "bears_on_reward",
                "read_record",
            ),
            "agent_layer.store.segments.tombstones": (
                "deaths_of",
                "is_batch",
                "is_group",
                "leave_out",
                "leave_out_dead",
                "list_tombstones",
                "living_records",
                "load_tombstones",
                "members_of",
                "names_in",
                "owner_hash",
                "owners_in",
                "write_tombstones",
            ),
        },
    )
