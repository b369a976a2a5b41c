"""Lineage: every update behind a checkpoint, once, through kills and branches; from the objects alone, too."""

import random

import pytest

from agent_layer.schema.record import Advantages, Logprobs
from agent_layer.schema.training import CheckpointRef, PolicyVersion, TrainedBatch, TrainedRollout, TrainedTokens
from agent_layer.store import open_store
from trainer_adapter.lineage import read_parent, walk_lineage, write_parent

from ...builders import attempt
from ...stored import lose_index, write_segment


@pytest.fixture
def store(settings):
    return open_store(settings)


def make_batch(run, step, version, *sizes, at=5.0, number=0):
    """A batch of rollouts with these numbers of tokens, learned by this version; None: an earlier release."""
    rollouts = [
        TrainedRollout(
            trajectory_id=f"{run}{step}.{number}{one}-0",
            group_id=f"{run}{step}",
            reward=1.0,
            reward_ids=[],
            samples_hash="s",
            num_tokens=size,
        )
        for one, size in enumerate(sizes)
    ]
    total = None if None in sizes else sum(sizes)
    own = {"batch_id": f"{run}/{step}/{version}", "policy_version": version, "batch_hash": "h", "num_tokens": total}
    return TrainedBatch(run=run, step=step, trained_at=at, rollouts=rollouts, num_samples=len(sizes), **own)


def start(run, *parent):
    """The base of a run: weights from elsewhere, or those of a checkpoint (run, step)."""
    origin = CheckpointRef(run=parent[0], step=parent[1]) if parent else None
    return PolicyVersion(run=run, number=0, location="base", created_at=0.0, parent=origin)


def steps(store, run, step=None):
    return [(one.run, one.step) for one in walk_lineage(store, run, step)]


@pytest.mark.parametrize("seed", range(3))
def test_each_update_that_the_weights_went_through_comes_once_newest_first(store, seed):
    """A random history: trainers die, go on from a checkpoint, and other runs branch from checkpoints.

    No two trainers agree on the time, and the clock of one may jump between two updates.
    """
    rng = random.Random(seed)
    histories: dict[str, list[TrainedBatch]] = {}
    own_steps: dict[str, dict[int, int]] = {}
    """By run and step of a checkpoint: the updates behind it."""
    for number in range(6):
        run, parent = f"r{number}", rng.choice([None, *histories])
        step = rng.choice(list(own_steps[parent])) if parent else 0
        history = histories[parent][: own_steps[parent][step]] if parent else []
        first, offset = len(history), step if rng.random() < 0.5 else 0  # the other half begin with an exported model
        records = [start(run, parent, step) if parent else start(run)]
        version = 0
        for _ in range(rng.randint(1, 4)):  # trainers: each goes on from a step of the one before
            history = history[: rng.randint(first, len(history))]
            for _ in range(rng.randint(1, 5)):  # each update begins with weights that were published after all others
                at = rng.uniform(0.0, 1000.0)
                history.append(make_batch(run, len(history) - first + offset + 1, version, 3, 4, at=at))
                records.append(history[-1])
                version += rng.randint(1, 2)
        rng.shuffle(records)
        write_segment(store, *records)
        histories[run], own_steps[run] = (
            history,
            {size - first + offset: size for size in range(first, len(history) + 1)},
        )

    def check():
        for run, history in histories.items():
            assert list(walk_lineage(store, run)) == history[::-1]
            for step, size in own_steps[run].items():
                assert list(walk_lineage(store, run, step)) == history[:size][::-1]

    check()
    lose_index(store)
    store.admin.reindex()
    check()


def test_tokens_that_only_the_trajectories_know_are_counted(store):
    batch = make_batch("r", 1, 0, None, None)
    first, second = (one.trajectory_id for one in batch.rollouts)
    columns = TrainedTokens(
        trajectory_id=second,
        run="r",
        batch_id=batch.batch_id,
        step=1,
        policy_version=0,
        at=6.0,
        calls=[("c", 0, 3)],
        logprobs=Logprobs([0.0] * 3),
        advantages=Advantages([0.0] * 3),
        mask=b"\1\1\0",
    )
    write_segment(store, *attempt(first), *attempt(second), batch)
    assert [one.num_tokens for one in walk_lineage(store, "r")] == [None]

    write_segment(store, columns)

    (found,) = walk_lineage(store, "r")
    assert (found.num_tokens, [one.num_tokens for one in found.rollouts]) == (3, [0, 3])


def test_a_run_without_updates_has_those_of_the_weights_that_it_began_with(store, tmp_path):
    write_segment(store, start("a"), make_batch("a", 1, 0, 2), make_batch("a", 2, 1, 2), start("b", "a", 1))
    assert steps(store, "b") == steps(store, "a", 1) == [("a", 1)]
    assert steps(store, "unknown") == []

    assert read_parent(tmp_path) is None
    write_parent(tmp_path, CheckpointRef(run="a", step=1))
    assert read_parent(tmp_path) == CheckpointRef(run="a", step=1)
