"""Training batches of a run: the rollouts that each step learned from."""

from collections.abc import Collection, Iterable, Iterator
from typing import cast

from redis import Redis

from agent_layer.errors import CorruptRecordError
from agent_layer.infra import Keys, batched
from agent_layer.schema import TrainedBatch, decode, trajectory_owner
from agent_layer.store.segments.tombstones import deletion_times, drop_deleted_rollouts

_PAGE = 256


def list_batches(redis: Redis, keys: Keys, run: str) -> list[TrainedBatch]:
    """Read the batch of each step of a run, in order of steps; of a step that was done again, the later one.

    Rollouts that were deleted are counted, not named, even while some object still names them.
    """
    found = sorted(_scan(redis, keys, run), key=lambda batch: (batch.step, batch.trained_at, batch.batch_id))
    latest = list({batch.step: batch for batch in found}.values())
    named = {rollout.trajectory_id for batch in latest for rollout in batch.rollouts}
    dead = deletion_times(redis, keys, map(trajectory_owner, named))
    return [drop_deleted_rollouts(batch, dead) for batch in latest]


def segments_of_batches(redis: Redis, keys: Keys, runs: Iterable[str], trajectory_ids: Collection[str]) -> set[str]:
    """Names of the segments that hold a batch of these runs which names one of these trajectories.

    Reads all batches of the runs: only a deletion asks, and an index of its own would cost more than they do.
    """
    segments: set[str] = set()
    for run in sorted(runs):
        naming = (one for one in _scan(redis, keys, run) if _names_any(one, trajectory_ids))
        for page in batched((f"{run}:{one.step}" for one in naming), _PAGE):
            held = cast("list[bytes | None]", redis.hmget(keys.batch_segments, page))
            segments |= {name for names in held if names for name in names.decode().split()}
    return segments


def _scan(redis: Redis, keys: Keys, run: str) -> Iterator[TrainedBatch]:
    """All batches of a run, in any order; one may come twice."""
    stored = redis.hscan_iter(keys.batches(run), count=_PAGE)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in redis-py
    for _, content in cast("Iterator[tuple[bytes, bytes]]", stored):
        yield _decode_batch(content)


def _names_any(batch: TrainedBatch, trajectory_ids: Collection[str]) -> bool:
    return any(rollout.trajectory_id in trajectory_ids for rollout in batch.rollouts)


def _decode_batch(stored: bytes) -> TrainedBatch:
    if isinstance(batch := decode(stored), TrainedBatch):
        return batch
    raise CorruptRecordError(f"batch index: expected trained batches, found {type(batch).__name__}; reindex the store")
