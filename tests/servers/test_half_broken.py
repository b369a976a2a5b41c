"""An index that lost any of its keys: a check reports it, and every answer comes back."""

import random
import time

import pytest

from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Group, Outcome
from agent_layer.schema.step import Action, ContentRef, Observation, StepPart
from agent_layer.schema.training import PolicyVersion, TrainedBatch
from agent_layer.store.consumers.trained_batches import list_batches
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.segments.blobs import blob_key, blob_name, pack
from agent_layer.store.segments.tombstones import write_tombstones

from ..profiles import num_examples

SEEDS = range(num_examples(12))
SHARED = ("ordinals", "events", "steps", "reindexing", "quarantine", "replaced", "unneeded", "compacting", "blobs")
"""Keys whose content is in no segment, or whose loss has no effect."""
OF_OTHERS = ("acked", "claims", "feeds", "clock", "synced", "q:")
"""Keys of those who share the namespace."""
NOW = time.time() - 100.0
"""Lists of accepted attempts are kept for 30 days."""


@pytest.fixture
def objects_settings(settings):
    """One kind of object store is enough here: only Redis loses data."""
    return settings


@pytest.fixture
def full_store(store, write, make_attempt):
    """Trajectories in several segments each, one without a reward, one without a start, one of steps only, one dead."""
    write(
        *make_attempt("a.0-0", at=NOW + 100.0, score=0.5),
        *make_attempt("b.0-0", at=NOW + 90.0, score=-1.0, num_choices=2),
    )
    split = make_attempt("c.0-0", at=NOW + 80.0, score=1.0)
    write(*split[:2], PolicyVersion(run="r", number=0, location="w", created_at=1.0))
    write(*split[2:5])
    write(*split[5:])
    write(StepPart(trajectory_id="d.0-0", call_id="c", run="s", source="hook", phase="start", at=NOW + 5.0))
    started = AttemptStarted(
        trajectory_id="e.0-0",
        run="s",
        rollout_id="e.0",
        attempt=0,
        task_id="u",
        started_at=NOW + 70.0,
        labels={"k": "w"},
    )
    seen = Observation(trajectory_id="e.0-0", observation_id="o", run="s", at=NOW + 71.0, name="search", output=None)
    part = StepPart(
        trajectory_id="e.0-0",
        call_id="c",
        run="s",
        source="gateway",
        phase="end",
        at=NOW + 72.0,
        agent="judge",
        actions=[Action(policy_versions=[(9, 1)])],
    )
    write(started, seen)
    write(part)
    body = b'"what is large"'
    shown = ContentRef(trajectory_id="e.0-0", hash="h", blob=blob_name(body), size_bytes=len(body))
    store.objects.put(blob_key(store.keys, shown.blob), pack(body))
    write(shown)
    write(Outcome(trajectory_id="e.0-0", run="s", status="failed", cause="infra", ended_at=NOW + 75.0))
    write(Reward(trajectory_id="e.0-0", run="s", reward_id="e", at=NOW + 74.0, scope="step", step=0, score=0.5))
    write(Accepted(trajectory_id="e.0-0", run="s", rollout_id="e.0", accepted_at=NOW + 76.0))
    write(Group(group_id="g", run="r", task_id="t", closed_at=9.0, trajectory_ids=["a.0-0", "b.0-0"]))
    batch = {"policy_version": 0, "trained_at": 1.0, "rollouts": [], "num_samples": 0, "batch_hash": "h"}
    write(TrainedBatch(run="r", batch_id="b", step=1, **batch))
    write(*make_attempt("dead.0-0"), *make_attempt("f.0-0", at=NOW + 60.0))
    deleted_at = write_tombstones(store.keys, store.objects, ["dead.0-0"], "deleted")
    apply_tombstones(store.redis, store.keys, ["dead.0-0"], deleted_at)
    return store


def everything(store, collect_answers):
    """All answers of a store, numbers included that are counted in bitmaps and summed up in columns."""
    filters = [{}, {"run": "r"}, {"accepted": True}, {"reward": (0.4, None)}, {"policy": (5, 9)}, {"tool": "search"}]
    filters += [{"labels": {"k": "v"}}, {"step": "last"}, {"status": "failed"}, {"agent": "judge"}]
    return (
        collect_answers(store),
        [store.count(**one) for one in filters],
        [[row.trajectory_id for row in store.query(**one, order="reward").items] for one in filters],
        store.summarise(["run", "status", "policy"]),
        store.summarise(["agent"]),
        list_batches(store.redis, store.keys, "r"),
    )


def index_keys(store):
    begin = store.keys.name("")
    names = sorted(key.decode().removeprefix(begin) for key in store.redis.scan_iter(match=f"{begin}*"))
    return [name for name in names if not name.startswith((*SHARED, *OF_OTHERS))]


def lose(store, names):
    store.redis.delete(*(store.keys.name(name) for name in names))


@pytest.mark.parametrize("mend", ["check", "reindex"])
def test_any_one_key_that_is_lost_is_noticed_and_comes_back(full_store, collect_answers, mend):
    before = everything(full_store, collect_answers)
    assert full_store.admin.check().findings == []
    unnoticed, unmended = [], []

    names = index_keys(full_store)
    every = len(names) // num_examples(len(names))
    for name in names[0 if mend == "check" else every // 2 :: every]:
        lose(full_store, [name])
        if full_store.admin.check(repair=mend == "check").findings == []:
            unnoticed.append(name)
        if mend == "reindex":
            full_store.admin.reindex()
        if everything(full_store, collect_answers) != before or full_store.admin.check().findings:
            unmended.append(name)
            full_store.admin.reindex(drop=True)

    assert (unnoticed, unmended) == ([], [])


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_lost_is_noticed_and_comes_back(full_store, collect_answers, seed):
    before, chance = everything(full_store, collect_answers), random.Random(seed)
    names = index_keys(full_store)
    lose(full_store, chance.sample(names, chance.randrange(2, len(names))))

    assert full_store.admin.check().findings
    if seed % 2:
        full_store.admin.reindex()
    else:
        assert full_store.admin.check(repair=True).is_sound

    assert full_store.admin.check().findings == []
    assert everything(full_store, collect_answers) == before
