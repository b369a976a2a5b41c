"""This file holds how a namespace that is done with leaves Redis: its objects stay, and a rebuild brings it back."""

from agent_layer.errors import BadInputError
from agent_layer.store.index import Index
from agent_layer.store.rebuild import drop_index
from agent_layer.store.summaries import count_trajectories

__all__ = ["cool_index"]


def cool_index(index: Index) -> int:
    """Take the index out of Redis; gives the number of trajectories that it knew.

    Raises: BadInputError: something in the namespace is still going on.
    """
    redis, keys = index.redis, index.keys
    num_running = count_trajectories(index, {"status": "running"})
    if num_running or redis.xlen(keys.outbox):
        raise BadInputError(
            f"namespace {keys.namespace!r}: expected nothing to go on in it any more, found {num_running} trajectories"
            f" that run and {redis.xlen(keys.outbox)} decisions on their way; wait for them, or cool another namespace"
        )
    num_known = count_trajectories(index, {})
    drop_index(redis, keys)
    return num_known
