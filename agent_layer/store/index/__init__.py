"""The search index in Redis: commit, plan, search, count, aggregate."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.store.index.aggregate import By as By
    from agent_layer.store.index.aggregate import Summary as Summary
    from agent_layer.store.index.aggregate import count_by_bucket as count_by_bucket
    from agent_layer.store.index.aggregate import count_by_fields as count_by_fields
    from agent_layer.store.index.aggregate import count_trajectories as count_trajectories
    from agent_layer.store.index.aggregate import find_newest_starts as find_newest_starts
    from agent_layer.store.index.aggregate import summarise_trajectories as summarise_trajectories
    from agent_layer.store.index.bounded_search import Order as Order
    from agent_layer.store.index.commit import commit_segments as commit_segments
    from agent_layer.store.index.commit import compute_rewards as compute_rewards
    from agent_layer.store.index.commit import remember_replaced as remember_replaced
    from agent_layer.store.index.deletion import apply_tombstones as apply_tombstones
    from agent_layer.store.index.filters import Filters as Filters
    from agent_layer.store.index.filters import Which as Which
    from agent_layer.store.index.filters import bucket_ends as bucket_ends
    from agent_layer.store.index.index import Index as Index
    from agent_layer.store.index.membership import select_matching as select_matching
    from agent_layer.store.index.rows import GivenLabel as GivenLabel
    from agent_layer.store.index.rows import TrajectoryRow as TrajectoryRow
    from agent_layer.store.index.rows import read_given_labels as read_given_labels
    from agent_layer.store.index.scripts import COMMIT as COMMIT
    from agent_layer.store.index.scripts import ENTER_REWARDS as ENTER_REWARDS
    from agent_layer.store.index.scripts import FORGET as FORGET
    from agent_layer.store.index.scripts import INDEX_CONSTANTS as INDEX_CONSTANTS
    from agent_layer.store.index.scripts import INDEX_PRELUDE as INDEX_PRELUDE
    from agent_layer.store.index.scripts import MARK_COMMITTED as MARK_COMMITTED
    from agent_layer.store.index.scripts import RETIRE as RETIRE
    from agent_layer.store.index.scripts import SEARCH as SEARCH
    from agent_layer.store.index.search import Explanation as Explanation
    from agent_layer.store.index.search import RowPage as RowPage
    from agent_layer.store.index.search import explain_search as explain_search
    from agent_layer.store.index.search import find_trajectories as find_trajectories
    from agent_layer.store.index.search import scan_trajectories as scan_trajectories
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.store.index.aggregate": (
                "By",
                "Summary",
                "count_by_bucket",
                "count_by_fields",
                "count_trajectories",
                "find_newest_starts",
                "summarise_trajectories",
            ),
            "agent_layer.store.index.commit": (
                "commit_segments",
                "remember_replaced",
                "compute_rewards",
            ),
            "agent_layer.store.index.deletion": ("apply_tombstones",),
            "agent_layer.store.index.filters": (
                "Filters",
                "Which",
                "bucket_ends",
            ),
            "agent_layer.store.index.index": ("Index",),
            "agent_layer.store.index.membership": ("select_matching",),
            "agent_layer.store.index.bounded_search": ("Order",),
            "agent_layer.store.index.rows": ("GivenLabel", "TrajectoryRow", "read_given_labels"),
            "agent_layer.store.index.scripts": (
                "COMMIT",
                "ENTER_REWARDS",
                "FORGET",
                "INDEX_CONSTANTS",
                "INDEX_PRELUDE",
                "MARK_COMMITTED",
                "RETIRE",
                "SEARCH",
            ),
            "agent_layer.store.index.search": (
                "Explanation",
                "RowPage",
                "explain_search",
                "find_trajectories",
                "scan_trajectories",
            ),
        },
    )
