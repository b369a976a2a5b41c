"""Training batches in a file: the rows, loss masks and advantages that our trainer would feed veRL, without padding.

Columns have veRL's names. A row is one sample; ``rollout`` is the position of its rollout in the batch, and ``uid`` the
group that shares its baseline.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra import batched
from agent_layer.schema import ExcludedRollout, Group, HeldOutTasks, JsonObject, decode
from agent_layer.store import Filters, Store, TrajectoryRow
from trainer_adapter.algorithms import ResolvedAlgorithm
from trainer_adapter.data import (
    CreditRule,
    GroupSamples,
    find_held_out,
    make_rollout_samples,
    read_rollout,
    select_batch,
    spread_advantages,
)

_IDS, _FLOATS = pa.list_(pa.int32()), pa.list_(pa.float32())

BATCH_SCHEMA: Final = pa.schema(
    {
        "batch": pa.int32(),
        "rollout": pa.int32(),
        "uid": pa.string(),
        "trajectory_id": pa.string(),
        "data_source": pa.string(),
        "reward": pa.float64(),
        "prompts": _IDS,
        "responses": _IDS,
        "response_mask": pa.list_(pa.int8()),
        "rollout_log_probs": _FLOATS,
        "advantages": _FLOATS,
        "versions": _IDS,
        "temperature": pa.float64(),
    }
)
"""Columns of a batch."""

_IDS_PER_CALL, _ROWS_PER_WRITE = 1_000, 256


def find_groups(store: Store, filters: Filters) -> list[Group]:
    """Return the closed groups of split train that have a trajectory which matches the filters, in order of closing."""
    ids = {row.group_id: None for row in store.scan(**filters) if row.group_id and row.split == "train"}
    found: list[Group] = []
    for part in batched(ids, _IDS_PER_CALL):
        stored = cast("list[bytes | None]", store.redis.mget([store.keys.group(one) for one in part]))
        decoded = [decode(one) for one in stored if one is not None]
        found += [one for one in decoded if isinstance(one, Group) and one.trajectory_ids]
    return sorted(found, key=lambda group: (group.closed_at, group.group_id))


def batch_rows(  # noqa: PLR0913  # what is read, by which rules
    store: Store,
    groups: list[Group],
    per_batch: int,
    algorithm: ResolvedAlgorithm,
    left_out: Counter[str],
    progress: Callable[[int], object] = lambda _: None,
    *,
    held_out: Callable[[str], HeldOutTasks] = lambda _: HeldOutTasks([]),
) -> Iterator[JsonObject]:
    """Yield the rows of one batch after the other.

    A group is read whole, whatever filter found it: without its other members its baseline would be another.

    Args:
        store: source.
        groups: in the order in which they are trained.
        per_batch: groups of one update.
        algorithm: by which advantages are computed.
        left_out: counts rollouts that cannot be trained exactly, by kind.
        progress: called with the number of groups read.
        held_out: returns what is held out of groups of a run.
    """
    rule = CreditRule.of(algorithm)
    keep_equal = algorithm.is_regularised(0, 1) or not algorithm.compares_groups
    num_read = 0
    for number, part in enumerate(batched(groups, per_batch)):
        batch = select_batch(
            (_read_group(store, group, rule, left_out, held_out(group.run)) for group in part),
            keep_equal=keep_equal,
            rule=rule,
        )
        for owner, sample, advantages in zip(
            batch.rollout_of, batch.samples, spread_advantages(batch, algorithm), strict=True
        ):
            yield {
                "batch": number,
                "rollout": owner,
                "uid": batch.group_ids[owner],
                "trajectory_id": sample.trajectory_id,
                "data_source": sample.task_type,
                "reward": batch.rewards[owner],
                "prompts": list(sample.prompt_ids),
                "responses": list(sample.response_ids),
                "response_mask": list(sample.loss_mask),
                "rollout_log_probs": list(sample.logprobs),
                "advantages": advantages,
                "versions": list(sample.versions),
                "temperature": sample.temperature,
            }
        num_read += len(part)
        progress(num_read)


def write_batches(path: Path, rows: Iterable[JsonObject]) -> int:
    """Write rows into a Parquet file; return how many."""
    num_rows = 0
    with pq.ParquetWriter(path, BATCH_SCHEMA, compression="zstd") as writer:
        for part in batched(rows, _ROWS_PER_WRITE):
            writer.write_table(pa.Table.from_pylist(part, schema=BATCH_SCHEMA))
            num_rows += len(part)
    return num_rows


def _read_group(
    store: Store, group: Group, rule: CreditRule, left_out: Counter[str], held_out: HeldOutTasks
) -> GroupSamples:
    rows = (row for one in group.trajectory_ids for row in _find_row(store, one))
    damaged: list[CorruptRecordError] = []
    members = store.read(rows, contents=False, on_corrupt=damaged.append)
    read = [(one, find_held_out(one, held_out) or read_rollout(one, rule.credit)) for _, one in members]
    left_out.update(found.kind for _, found in read if isinstance(found, ExcludedRollout))
    left_out += Counter(deleted=len(group.trajectory_ids) - len(read) - len(damaged), unreadable=len(damaged))
    return GroupSamples(
        group_id=group.group_id,
        task_id=group.task_id,
        rollouts=[
            make_rollout_samples(one, found, rule.credit)
            for one, found in read
            if not isinstance(found, ExcludedRollout)
        ],
    )


def _find_row(store: Store, trajectory_id: str) -> Iterator[TrajectoryRow]:
    try:
        yield store.row(trajectory_id)
    except NotFoundError:  # deleted
        return
