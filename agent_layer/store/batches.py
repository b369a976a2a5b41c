"""This file holds what the updates of a run learned from, step by step."""

from typing import cast

from redis import Redis

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.batch import TrainedBatch
from agent_layer.schema.codec import decode
from agent_layer.store.keys import Keys

__all__ = ["list_batches"]


def list_batches(redis: Redis, keys: Keys, run: str) -> list[TrainedBatch]:
    """Read the batch of each step of a run, in order of steps; of a step that was done again, the later one."""
    stored = cast("list[bytes]", redis.hvals(keys.batches(run)))
    found = sorted(map(_batch_of, stored), key=lambda batch: (batch.step, batch.trained_at, batch.batch_id))
    return list({batch.step: batch for batch in found}.values())


def _batch_of(stored: bytes) -> TrainedBatch:
    if isinstance(batch := decode(stored), TrainedBatch):
        return batch
    raise CorruptRecordError(f"batch index: expected trained batches, found {type(batch).__name__}; reindex the store")
