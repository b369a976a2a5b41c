"""The moves that a rollout may make from one status to another; ``lua/prelude.lua`` must allow these and no others."""

from agent_layer.dispatcher import OVER
from agent_layer.schema.rollout import RolloutStatus

_ENDS = (*OVER, "queued")

MOVES: dict[str, frozenset[RolloutStatus]] = {
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
"""Status → those that may follow it."""
