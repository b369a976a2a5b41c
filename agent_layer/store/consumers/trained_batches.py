"""Training batches of a run: the rollouts that each step learned from."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias, cast

from redis import Redis

from agent_layer.errors import CorruptRecordError
from agent_layer.infra import Keys, batched
from agent_layer.schema import TrainedBatch, decode, trajectory_owner
from agent_layer.store.segments.tombstones import deletion_times, drop_deleted_rollouts

_PAGE = 256

_Recency: TypeAlias = tuple[int, float, str]


def list_batches(redis: Redis, keys: Keys, run: str) -> list[TrainedBatch]:
    """Read the batch of each step of a run, in order of steps; of a step that was done again, the later one.

    Rollouts that were deleted are counted, not named, even while some object still names them.
    """
    found = sorted(_scan(redis, keys, run), key=lambda batch: (batch.step, _recency(batch)))
    latest = list({batch.step: batch for batch in found}.values())
    named = {rollout.trajectory_id for batch in latest for rollout in batch.rollouts}
    dead = deletion_times(redis, keys, map(trajectory_owner, named))
    return [drop_deleted_rollouts(batch, dead) for batch in latest]


class NamingBatches(NamedTuple):
    """Batches that name given trajectories."""

    segments: set[str]
    """Names of the segments that hold them."""
    steps: dict[str, list[int]]
    """Updates that learned from one of the trajectories, ascending, by run; without those that were done again."""


def find_naming_batches(
    redis: Redis, keys: Keys, runs: Iterable[str], trajectory_ids: Collection[str]
) -> NamingBatches:
    """Return where batches of these runs name one of these trajectories.

    Reads all batches of the runs: only a deletion asks, and an index of its own would cost more than they do.
    """
    segments, learned = set[str](), dict[str, list[int]]()
    for run in sorted(runs):
        steps, newest = set[int](), dict[int, tuple[_Recency, bool]]()
        for batch in _scan(redis, keys, run):
            is_naming = any(rollout.trajectory_id in trajectory_ids for rollout in batch.rollouts)
            steps |= {batch.step} if is_naming else set()
            found = _recency(batch), is_naming
            newest[batch.step] = max(found, newest.get(batch.step, found))
        for page in batched((f"{run}:{step}" for step in sorted(steps)), _PAGE):
            held = cast("list[bytes | None]", redis.hmget(keys.batch_segments, page))
            segments |= {name for names in held if names for name in names.decode().split()}
        if those := sorted(step for step, (_, is_naming) in newest.items() if is_naming):
            learned[run] = those
    return NamingBatches(segments, learned)


def _recency(batch: TrainedBatch) -> _Recency:
    """Order of the batches of one step. A trainer that goes on from a checkpoint publishes a higher version first.

    Versions are equal only where the killed trainer had published nothing since: both began with the same weights.
    """
    return batch.policy_version, batch.trained_at, batch.batch_id


def _scan(redis: Redis, keys: Keys, run: str) -> Iterator[TrainedBatch]:
    """All batches of a run, in any order; one may come twice."""
    stored = redis.hscan_iter(keys.batches(run), count=_PAGE)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in redis-py
    for _, content in cast("Iterator[tuple[bytes, bytes]]", stored):
        yield _decode_batch(content)


def _decode_batch(stored: bytes) -> TrainedBatch:
    if isinstance(batch := decode(stored), TrainedBatch):
        return batch
    raise CorruptRecordError(f"batch index: expected trained batches, found {type(batch).__name__}; reindex the store")
