"""What a question to Redis leaves out: runs that were cooled or lost, whose segments only the objects have."""

import typer

from agent_layer.errors import UnreachableError
from agent_layer.infra import open_objects
from agent_layer.settings import Settings
from agent_layer.store import Store, find_unindexed

_MAX_NAMED = 8
_LISTING_SECONDS = 2.0
"""Longest retry of the listing: the answer itself needs no objects."""
_WAYS = "'agent-layer view' shows them, 'agent-layer store reindex' restores them"


def print_left_out(settings: Settings, store: Store, run: str | None, *, is_empty: bool) -> None:
    """Print on standard error what an answer leaves out; see ``describe_left_out``."""
    if (sentence := describe_left_out(settings, store, run, is_empty=is_empty)) is not None:
        typer.echo(f"left out: {sentence}", err=True)


def describe_left_out(settings: Settings, store: Store, run: str | None, *, is_empty: bool) -> str | None:
    """Return what Redis does not know of the runs that were asked for; None: nothing.

    ``store cool`` leaves a note in Redis, which is read each time. A Redis that was lost has none, so where it finds
    nothing the objects are listed.
    """
    cooled = sorted(name for name in store.admin.find_cooled() if run in (None, name))
    if cooled:
        more = f" and {len(cooled) - _MAX_NAMED} more" if len(cooled) > _MAX_NAMED else ""
        return f"what 'store cool' removed from Redis of {', '.join(cooled[:_MAX_NAMED])}{more}; {_WAYS}"
    if not is_empty:
        return None
    quick = settings.model_copy(update={"retry_seconds": min(settings.retry_seconds, _LISTING_SECONDS)})
    try:
        unindexed = find_unindexed(store.redis, store.keys, open_objects(quick))
    except UnreachableError:
        return None
    num = len(unindexed)
    return f"{num} stored segment{'s' * (num != 1)} that Redis lost, or does not know yet; {_WAYS}" if num else None
