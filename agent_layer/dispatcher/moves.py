"""This file holds the moves that a rollout may make from one status to another, as ``lua/queue.lua`` enforces them."""

from typing import Final

from agent_layer.schema.rollout import RolloutStatus

__all__ = ["HELD", "MOVES", "OVER"]

HELD: Final[tuple[RolloutStatus, ...]] = ("leased", "running", "scoring", "sealing")
"""A worker has the rollout, and a lease on it."""
OVER: Final[tuple[RolloutStatus, ...]] = ("completed", "truncated", "cancelled", "dead")
"""Nothing more happens, unless somebody has a dead one tried again."""

_ENDS: Final[tuple[RolloutStatus, ...]] = (*OVER, "queued")

MOVES: Final[dict[str, frozenset[RolloutStatus]]] = {
    "new": frozenset({"queued"}),
    "queued": frozenset({"leased", "cancelled"}),
    "paused": frozenset({"leased", "cancelled"}),
    "leased": frozenset({"running", "scoring", "sealing", "paused", *_ENDS}),
    "running": frozenset({"scoring", "sealing", "paused", *_ENDS}),
    "scoring": frozenset({"sealing", *_ENDS}),
    "sealing": frozenset(_ENDS),
    "completed": frozenset(),
    "truncated": frozenset(),
    "cancelled": frozenset(),
    "dead": frozenset({"queued"}),
}
"""Status → those that may follow it. Each script asks this table before it writes."""
