"""Groups of rollouts, queued in batches so that no script call holds up the server for long."""

from collections.abc import Iterator, Sequence

from agent_layer.dispatcher.scripts import Scripts
from agent_layer.dispatcher.tasks import num_launched
from agent_layer.errors import BackPressureError, UnreachableError
from agent_layer.infra import RedisUnreachableError
from agent_layer.schema import Task

_ROLLOUTS_PER_CALL = 256


def add_groups(scripts: Scripts, groups: Sequence[tuple[str, Task]]) -> None:
    """Queue (group id, task) pairs; a group that is known stays as it is.

    Raises:
        BackPressureError: the queue has no room; earlier batches are queued, and adding again continues.
        UnreachableError: Redis refused a batch, for example because its disk is full; the same holds.
    """
    limit = scripts.settings.max_queued_rollouts
    num_done = 0
    for batch in _batch_groups(groups):
        try:
            added = scripts.add(batch, limit)
        except UnreachableError as error:
            raise RedisUnreachableError(
                f"submit: {num_done:,} of {len(groups):,} tasks, the first ones, are known to be queued, then this"
                f" failed: {error}; submit all of them again, which queues none twice"
            ) from error
        if isinstance(added, int):
            raise BackPressureError(
                f"queue of namespace {scripts.settings.namespace!r}: no room for"
                f" {sum(num_launched(task) for _, task in batch)} more rollouts, {added} of at most {limit}"
                f" (max_queued_rollouts) are queued; the first {num_done:,} of these {len(groups):,} tasks are"
                " queued, submit all of them again when some have run"
            )
        num_done += len(batch)


def _batch_groups(groups: Sequence[tuple[str, Task]]) -> Iterator[list[tuple[str, Task]]]:
    batch: list[tuple[str, Task]] = []
    num_rollouts = 0
    for group_id, task in groups:
        if batch and num_rollouts + num_launched(task) > _ROLLOUTS_PER_CALL:
            yield batch
            batch, num_rollouts = [], 0
        batch.append((group_id, task))
        num_rollouts += num_launched(task)
    if batch:
        yield batch
