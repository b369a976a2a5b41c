"""Care of the store: audit, compaction, deletion, retention, garbage collection, rebuild."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.store.maintenance.audit import (
        CheckReport as CheckReport,
    )
    from agent_layer.store.maintenance.audit import (
        Finding as Finding,
    )
    from agent_layer.store.maintenance.audit import (
        check_store as check_store,
    )
    from agent_layer.store.maintenance.call_stats import describe_call_stats as describe_call_stats
    from agent_layer.store.maintenance.compaction import CompactionReport as CompactionReport
    from agent_layer.store.maintenance.compaction import compact as compact
    from agent_layer.store.maintenance.deletion import (
        DeletionReport as DeletionReport,
    )
    from agent_layer.store.maintenance.deletion import (
        delete_trajectories as delete_trajectories,
    )
    from agent_layer.store.maintenance.gc import (
        GcReport as GcReport,
    )
    from agent_layer.store.maintenance.gc import (
        Grace as Grace,
    )
    from agent_layer.store.maintenance.gc import (
        collect_garbage as collect_garbage,
    )
    from agent_layer.store.maintenance.index_audit import AUDIT_ROWS as AUDIT_ROWS
    from agent_layer.store.maintenance.index_audit import COUNT_ORPHAN_BITS as COUNT_ORPHAN_BITS
    from agent_layer.store.maintenance.merge_plan import Limits as Limits
    from agent_layer.store.maintenance.rebuild import (
        Progress as Progress,
    )
    from agent_layer.store.maintenance.rebuild import (
        ReindexReport as ReindexReport,
    )
    from agent_layer.store.maintenance.rebuild import (
        find_unindexed as find_unindexed,
    )
    from agent_layer.store.maintenance.rebuild import (
        offload_index as offload_index,
    )
    from agent_layer.store.maintenance.rebuild import (
        reindex as reindex,
    )
    from agent_layer.store.maintenance.retention import (
        ExpiryReport as ExpiryReport,
    )
    from agent_layer.store.maintenance.retention import (
        ExpiryRules as ExpiryRules,
    )
    from agent_layer.store.maintenance.retention import (
        expire_trajectories as expire_trajectories,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.store.maintenance.audit": (
                "CheckReport",
                "Finding",
                "check_store",
            ),
            "agent_layer.store.maintenance.call_stats": ("describe_call_stats",),
            "agent_layer.store.maintenance.compaction": (
                "CompactionReport",
                "compact",
            ),
            "agent_layer.store.maintenance.deletion": (
                "DeletionReport",
                "delete_trajectories",
            ),
            "agent_layer.store.maintenance.gc": (
                "GcReport",
                "Grace",
                "collect_garbage",
            ),
            "agent_layer.store.maintenance.index_audit": (
                "AUDIT_ROWS",
                "COUNT_ORPHAN_BITS",
            ),
            "agent_layer.store.maintenance.merge_plan": ("Limits",),
            "agent_layer.store.maintenance.rebuild": (
                "Progress",
                "ReindexReport",
                "find_unindexed",
                "offload_index",
                "reindex",
            ),
            "agent_layer.store.maintenance.retention": (
                "ExpiryReport",
                "ExpiryRules",
                "expire_trajectories",
            ),
        },
    )
